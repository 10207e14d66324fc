"""What engine, backends and hosts send each other."""
