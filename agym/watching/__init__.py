"""Shows and records what environments do: the live page, videos, traces, TensorBoard."""
