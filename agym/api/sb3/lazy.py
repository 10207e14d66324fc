"""Keeps torch out of worker processes whose environments need only SB3's ``Monitor``.

``import stable_baselines3.common.monitor`` first runs ``stable_baselines3/__init__.py``, which
imports every algorithm and torch: seconds, and some hundred megabytes, per worker. This module
defers the code of such packages until one of their names is used, such as
``stable_baselines3.PPO``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from agym.core._system.pickling import Preceded

# The packages that the factories of SB3's ``make_vec_env`` import from, the outer one first.
PACKAGES = ("stable_baselines3", "stable_baselines3.common.vec_env")


class _LaterModule(ModuleType):
    """A package whose submodules can be imported before its own code has run."""

    def __getattr__(self, name: str) -> Any:
        """Run the package's code, because one of its names is used."""
        self.__class__ = ModuleType  # type: ignore[assignment]
        loader: Any = self.__loader__
        loader.exec_module(self)
        return getattr(self, name)


def defer_imports() -> None:
    """Defer the packages, unless SB3 is imported already, or is not installed."""
    if PACKAGES[0] in sys.modules or importlib.util.find_spec(PACKAGES[0]) is None:
        return
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _LaterModule
        sys.modules[name] = package


def deferring_imports(factory: Any) -> Any:
    """Wrap a factory so that the packages are deferred before the factory is unpickled.

    This relies on pickle, which loads the arguments of a partial function in order.
    """
    return partial(_make, Preceded(None, defer_imports), factory) if callable(factory) else factory


def _make(_: Any, factory: Callable[[], Any]) -> Any:
    return factory()
