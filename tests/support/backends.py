"""Backends with options that many tests share."""

from agym.backends import Process

# Worker processes that start at once.
FORK = Process(start_method="fork")
