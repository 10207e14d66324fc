"""Benchmarks of rule books: games that are written once and run many at a time."""
