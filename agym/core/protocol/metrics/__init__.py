"""Counters and times of hosts, stored in the slot table."""
