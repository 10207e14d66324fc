"""``python -m agym.cli``: the command ``agym``."""

from agym.cli.app import app

app(prog_name="agym")
