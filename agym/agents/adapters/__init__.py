"""Other libraries' text environments in agym, and agym's environments in these libraries.

Example:
    >>> import agym
    >>> sorted(agym.adapters.__all__)
    ['gem', 'skyrl_gym', 'textarena', 'trl', 'verifiers']

This module is ``agym.adapters``. Each of its modules needs the library that it is named after:
``agym.adapters.gem`` needs the extra ``gem``, and so on. A module is imported when it is first
used.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agym.agents.adapters import gem, skyrl_gym, textarena, trl, verifiers

__all__ = ["gem", "skyrl_gym", "textarena", "trl", "verifiers"]


def __getattr__(name: str) -> ModuleType:
    """Import the adapter of a library.

    Raises:
        MissingExtraError: The library is not installed.
    """
    if name not in __all__:
        raise AttributeError(f"agym.adapters has no {name!r}: it has {', '.join(__all__)}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """Return the names of the libraries."""
    return __all__
