"""Tools to watch environments: the live page, videos, timelines, TensorBoard."""
