"""Tools built on the public API: video, the live page, traces, TensorBoard, replay and chaos."""
