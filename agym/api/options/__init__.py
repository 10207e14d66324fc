"""The options of `make`."""
