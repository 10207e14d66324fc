"""``python -m agym``: the command ``agym``."""

from agym.cli.app import app

app(prog_name="agym")
