"""Programs as users write them: each file is about one thing that they may expect to work."""
