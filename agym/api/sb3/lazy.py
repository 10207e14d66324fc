"""SB3 without torch, in worker processes: their environments need little more than ``Monitor``.

``import stable_baselines3.common.monitor`` runs ``stable_baselines3/__init__.py`` first, which
imports every algorithm and torch: seconds, and some hundred megabytes, in each worker. Here such
files are put off until something that they define is wanted, such as ``stable_baselines3.PPO``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

# What ``make_vec_env`` of SB3 has in its factories comes from these; the outer one first.
PACKAGES = ("stable_baselines3", "stable_baselines3.common.vec_env")


class _LaterModule(ModuleType):
    """A package whose submodules can be imported, and whose own code has not run yet."""

    def __getattr__(self, name: str) -> Any:
        """Run it: something is wanted that it defines."""
        self.__class__ = ModuleType  # type: ignore[assignment]
        loader: Any = self.__loader__
        loader.exec_module(self)
        return getattr(self, name)


def defer_imports() -> None:
    """Put the packages off, unless SB3 is imported already, or is not there."""
    if PACKAGES[0] in sys.modules or importlib.util.find_spec(PACKAGES[0]) is None:
        return
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _LaterModule
        sys.modules[name] = package


class _DeferringFinder:
    """Puts the packages off where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return defer_imports, ()


def deferring_imports(factory: Any) -> Any:
    """A factory that puts the packages off before the one in it is unpickled.

    Arguments of a partial function are unpickled in order.
    """
    return partial(_make, _DeferringFinder(), factory) if callable(factory) else factory


def _make(_: Any, factory: Callable[[], Any]) -> Any:
    return factory()
