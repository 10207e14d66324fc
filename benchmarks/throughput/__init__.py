"""Steps per second against other runners, by environment and number."""
