"""The choice of a backend."""
