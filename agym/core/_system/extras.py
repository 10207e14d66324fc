"""Optional packages: imports them, or raises an error that names the missing extra."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
from typing import Any
from urllib.parse import unquote, urlsplit

from agym.errors import MissingExtraError

DISTRIBUTION = "agym-envs"


def require(module: str, extra: str) -> Any:
    """Import an optional module that the extra ``extra`` of agym installs.

    Raises:
        MissingExtraError: The module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(how_to_get(module, extra)) from error


def installed(module: str) -> bool:
    """Return whether a top-level module is installed, without importing it."""
    return importlib.util.find_spec(module) is not None


def how_to_get(module: str, extra: str) -> str:
    """Return the sentence that names the extra."""
    return f"{module.partition('.')[0]} is not installed: {install_command(extra)}"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to agym, for the source of this installation.

    Example:
        >>> install_command("watch")
        'pip install ...[watch]...'
    """
    try:
        record = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:  # a folder on PYTHONPATH
        record = None
    wanted = f"{DISTRIBUTION}[{extra}]"
    if record is None:  # installed from an index
        return f'pip install "{wanted}"'
    origin = json.loads(record)
    url: str = origin["url"]
    if "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        folder = unquote(urlsplit(url).path)
        if os.name == "nt":
            folder = folder.removeprefix("/")  # of /C:/Users
        return f'pip install {editable}"{folder}[{extra}]"'
    if source := origin.get("vcs_info"):
        url = f"{source['vcs']}+{url}@{source['commit_id']}"
    return f'pip install "{wanted} @ {url}"'
