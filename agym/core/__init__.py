"""What only contributors open: the rings below the APIs, from the system up to planning."""
