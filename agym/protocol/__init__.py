"""What both sides of a process boundary share."""
