"""Data structures that both sides of a process boundary share."""
