"""Optional packages, imported at the door of the one file that uses each."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from agym.errors import MissingExtraError


def require(module: str, extra: str) -> Any:
    """Import an optional module.

    Args:
        module: Its name.
        extra: The extra of agym that brings it.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(how_to_get(module, extra)) from error


def installed(module: str) -> bool:
    """Whether a top-level module could be imported; it is not."""
    return importlib.util.find_spec(module) is not None


def how_to_get(module: str, extra: str) -> str:
    """The sentence that names the extra."""
    return f'{module.partition(".")[0]} is not installed: pip install "agym-envs[{extra}]"'
