"""The choice of a backend for ``backend="auto"``."""
