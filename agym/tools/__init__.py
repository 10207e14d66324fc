"""Built on the public API alone."""
