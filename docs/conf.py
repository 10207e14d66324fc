"""Sphinx builds the site: ``sphinx-build -W docs build/site``."""

from __future__ import annotations

import inspect
import re
import tempfile
import tomllib
import zlib
from pathlib import Path
from typing import Any

import typer
from sphinx.pycode import ModuleAnalyzer
from typer.cli import get_docs_for_click

import agym
from agym.cli.app import app as command_line

project = "agym"
author = "agym developers"
copyright = "2026 agym developers. MIT license."  # noqa: A001
release = version = agym.__version__

# The public addresses, which are empty until they exist.
PYPROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
ADDRESSES = PYPROJECT["tool"].get("agym", {})
REPOSITORY = ADDRESSES.get("repository", "").rstrip("/")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["reference/commands.md", "start/four_ways.md"]

templates_path = ["_templates"]
html_theme = "furo"
html_title = f"agym {release}"
html_short_title = "agym"
html_static_path = ["_static"]
html_css_files = ["style.css"]
pygments_dark_style = "github-dark"
html_favicon = "_static/favicon.svg"
html_baseurl = ADDRESSES.get("documentation", "")
html_context = {"repository": REPOSITORY}
html_theme_options = {
    "light_logo": "logo-light.svg",
    "dark_logo": "logo-dark.svg",
    "light_css_variables": {
        "color-brand-primary": "#0b7a75",
        "color-brand-content": "#0b7a75",
        "color-brand-visited": "#0b7a75",
        "color-api-name": "#0b7a75",
        "color-api-pre-name": "#6b6f76",
        "color-highlight-on-target": "#e3f3f1",
        "code-back": "#f3f5f6",
        "chart-quiet": "#b9bdc6",
        "chart-mid": "#7d8597",
    },
    "dark_css_variables": {
        "color-brand-primary": "#4fd1c5",
        "color-brand-content": "#4fd1c5",
        "color-brand-visited": "#4fd1c5",
        "color-api-name": "#4fd1c5",
        "color-api-pre-name": "#81868d",
        "color-highlight-on-target": "#12302e",
        "code-back": "#1c1f22",
        "chart-quiet": "#5b6069",
        "chart-mid": "#8d94a3",
    },
}
if REPOSITORY:
    html_theme_options |= {
        "source_repository": REPOSITORY,
        "source_branch": "main",
        "source_directory": "docs/",
        "footer_icons": [
            {
                "name": "Repository",
                "url": REPOSITORY,
                "html": (Path(__file__).parent / "_static/repository.svg").read_text(),
                "class": "",
            }
        ],
    }

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 60
# Long unions by their names, which reference/types.md explains.
autodoc_type_aliases = {
    name: name for name in ("AutoresetLike", "BackendLike", "EnvLike", "OnFault")
}
# Libraries that documented classes use or derive from, and that the extra ``docs`` does not bring.
autodoc_mock_imports = [
    "aiohttp", "gem", "httpx", "hypothesis", "pytest", "skyrl_gym", "stable_baselines3",
    "starlette", "textarena", "trl", "verifiers",
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


# What makes signatures shorter without making them less clear, in this order.
SHORTER = (
    (r"TypeAliasForwardRef\('(\w+)'\)", r"\1"),
    (r"~?(?:typing\.)?Literal\[([^]]*)\]", lambda found: found[1].replace(", ", " | ")),
    (r"~?(?:typing\.)?Unpack\[(?:~[\w.]+\.)?(\w+)\]", r"\1"),
    (r"~agym\.(?:core\.protocol\.typing|rollouts\.rollout)\.(?=[A-Z]\w*(?<!Rollout)\b)", ""),
    (r"numpy\.ndarray\[tuple\[~typing\.Any, \.\.\.\], ~numpy\.dtype\[[^]]*\]\]", "numpy.ndarray"),
    (r"numpy\.ndarray\[[^[\]]*\]", "numpy.ndarray"),
    (r"(?<=\w)\[~typing\.Any(?:, (?:~typing\.Any|~numpy\.ndarray))*\]", ""),
    (r"Callable\[\[\.\.\.\]", "Callable[..."),
    (r"stable_baselines3\.[\w.]+\.(?=VecEnvIndices)", ""),
    (r"<factory>", "..."),
    (r"(?<== )\d{5,}", lambda found: f"{int(found[0]):_}"),
)


def shorten(app: Any, kind: Any, name: Any, each: Any, options: Any, *parts: str | None) -> Any:
    """Shorten the two parts of a signature: the parameters and the result."""
    constants = getattr(each, "__globals__", {})
    for pattern, text in (
        (r"(?<== )[A-Z]+(?:_[A-Z]+)*\b", lambda found: repr(constants.get(found[0], found[0]))),
        *SHORTER,
    ):
        parts = tuple(part and re.sub(pattern, text, part) for part in parts)
    return parts


def write_index(app: Any, page: str, source: list[str]) -> None:
    """Turn ``<!-- index: some, words -->`` into entries of the index; "!" ranks them first."""

    def directive(found: re.Match[str]) -> str:
        return "```{index} " + ", ".join(f"! {word}" for word in found[1].split(", ")) + "\n```"

    source[0] = re.sub(r"<!-- index: (.*?) -->", directive, source[0])


def add_icon(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Name an icon for browsers that can't show the SVG file."""
    path = context["pathto"]("_static/favicon.png", resource=True)
    link = f'<link rel="icon" type="image/png" sizes="48x48" href="{path}">'
    context["metatags"] = context.get("metatags", "") + link


def analyze_without_overloads(self: ModuleAnalyzer) -> None:
    """Forget overloads, which are for type checkers: each function is shown with one signature."""
    analyze(self)
    self.overloads.clear()


analyze = ModuleAnalyzer.analyze
ModuleAnalyzer.analyze = analyze_without_overloads  # type: ignore[method-assign]


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("builder-inited", write_commands)
    app.connect("source-read", write_index)
    app.connect("html-page-context", add_icon)
    app.connect("autodoc-process-signature", shorten)
