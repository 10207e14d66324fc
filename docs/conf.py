"""Sphinx builds the site: ``sphinx-build -W docs build/site``."""

from __future__ import annotations

import inspect
import re
import tempfile
import zlib
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

import agym
from agym.cli.app import app as command_line

project = "agym"
author = "agym developers"
release = version = agym.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["reference/commands.md", "start/four_ways.md"]

html_theme = "furo"
html_title = "agym"
html_static_path: list[str] = []

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 60
# Long unions by their names, which reference/making.md explains.
autodoc_type_aliases = {name: name for name in ("BackendLike", "EnvLike", "OnFault")}
# Libraries that documented classes use or derive from, and that the extra ``docs`` does not bring.
autodoc_mock_imports = [
    "aiohttp", "gem", "httpx", "hypothesis", "pytest", "skyrl_gym", "stable_baselines3",
    "textarena", "trl", "verifiers",
]  # fmt: skip
napoleon_numpy_docstring = False
napoleon_use_ivar = True

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

# Where a site cannot be reached, these entries of its inventory are used.
KNOWN = {
    "python": {
        "asyncio.gather": "function library/asyncio-task.html#$",
        "asyncio.run": "function library/asyncio-runner.html#$",
        "ExceptionGroup": "exception library/exceptions.html#$",
        "ImportError": "exception library/exceptions.html#$",
        "ValueError": "exception library/exceptions.html#$",
    },
    "numpy": {"numpy.ndarray": "class reference/generated/$.html#$"},
    "gymnasium": {
        "gymnasium.Env": "class api/env/#$",
        "gymnasium.make": "function api/registry/#$",
        "gymnasium.utils.play.play": "function api/utils/#$",
        "gymnasium.vector.VectorEnv": "class api/vector/#$",
    },
}
SITES = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "gymnasium": "https://gymnasium.farama.org",
}


def inventory(name: str) -> str:
    """Write an inventory, in Sphinx's format, and return its path."""
    lines = "".join(
        f"{entry} py:{role} 1 {uri} -\n"
        for entry, (role, uri) in ((key, text.split()) for key, text in KNOWN[name].items())
    )
    header = f"# Sphinx inventory version 2\n# Project: {name}\n# Version: \n"
    header += "# The remainder of this file is compressed using zlib.\n"
    path = Path(tempfile.mkdtemp(), f"{name}.inv")
    path.write_bytes(header.encode() + zlib.compress(lines.encode()))
    return str(path)


intersphinx_mapping = {name: (url, (None, inventory(name))) for name, url in SITES.items()}
intersphinx_timeout = 5


def write_commands(app: Any) -> None:
    """Write the page of commands from typer's own descriptions."""
    command = typer.main.get_command(command_line)
    context = typer.Context(command, info_name="agym")
    text = get_docs_for_click(obj=command, ctx=context, name="agym").replace("int range", "int")
    text = text.removeprefix("# `agym`\n")
    text = re.sub(r"\n\n(agym .*)", r"\n$ \1", text)
    text = re.sub(r"(?m)^Examples:\n((\$ .*\n)+)", r"Examples:\n\n```console\n\1```\n", text)
    for name, each in command.commands.items():  # typer cuts what they do short
        summary = inspect.cleandoc(each.help).partition("\n\n")[0].replace("\n", " ")
        text = re.sub(rf"^\* `{name}`: .*", f"* `{name}`: {summary}", text, flags=re.MULTILINE)
    text = re.sub(r"(?m)^(\* .*\s)(--[\w-]+)", r"\1`\2`", text)  # else a dash
    Path(app.srcdir, "reference/commands.md").write_text(text)


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("builder-inited", write_commands)
