"""Measurements: ratios taken side by side in one run, by a command in ``python -m benchmarks``."""
