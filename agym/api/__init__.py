"""The APIs, which users call."""
