"""``python -m benchmarks``."""

from benchmarks.app import app

app(prog_name="python -m benchmarks")
