"""Optional packages: imports them, or raises an error that names the missing extra."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from agym.errors import MissingExtraError


def require(module: str, extra: str) -> Any:
    """Import an optional module, which the extra ``extra`` of agym installs.

    Raises:
        MissingExtraError: It is not installed.
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
    return f'{module.partition(".")[0]} is not installed: pip install "agym-envs[{extra}]"'
