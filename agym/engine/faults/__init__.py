"""What crashes, hangs and exceptions do to the environments."""
