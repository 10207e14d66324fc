"""What hosts count and time, stored in the slot table."""
