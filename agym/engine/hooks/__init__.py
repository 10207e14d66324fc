"""What is called while steps are under way."""
