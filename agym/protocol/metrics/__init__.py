"""What hosts count and time, in the slot table."""
