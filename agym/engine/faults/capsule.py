"""Capsules: everything needed to reproduce one failure of one environment."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

# Version of the file format (``engine/faults/capsule_file.py``).
VERSION = 1

_LONGEST = 200


def agym_version_here() -> str:
    """Return the version of the installed agym."""
    try:
        return importlib.metadata.version("agym-envs")
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return "unknown"


@dataclass(frozen=True, eq=False)
class Capsule:
    """One failure of one environment.

    Attributes:
        env_id: The environment.
        factory: Makes it, without arguments; ``None`` if it could not be pickled or read.
        autoreset: agym's name of the autoreset mode.
        operation: What failed: ``"make"``, ``"reset"``, ``"step"``, ``"render"``, ``"close"``,
            ``"call"``, ``"get_attr"`` or ``"set_attr"``; others cannot be repeated.
        kind: ``"raised"``, ``"died"`` or ``"timeout"``.
        error: The error in one line.
        seed: Seed of the last reset. If a reset failed and ``actions`` are empty, ``seed``, ``rng``
            and ``options`` are those of the failed reset.
        rng: Without a seed, the state of the environment's random numbers before that reset
            (``np_random.bit_generator``).
        options: Options of that reset.
        actions: The actions since the reset, without ``action``, in the form that ``step`` takes.
            A replay applies the autoreset mode to them again.
        action: The action of the step that failed.
        arguments: ``(name, args, kwargs)`` of a call, ``(name,)`` of ``get_attr``, ``(name,
            value)`` of ``set_attr``.
        traceback: The environment's traceback as text.
        episode: Episodes begun so far.
        step: Steps in this episode.
        complete: Whether ``actions`` begin at the reset and nothing is missing.
        missing: What is missing, and why.
        factory_text: The factory in words; derived from ``factory`` by default.
        version: Version of the file format.
        agym_version: Version of agym that wrote the capsule.
        python_version: Likewise of Python.
        gymnasium_version: Likewise of Gymnasium.
    """

    env_id: int
    factory: Callable[[], Any] | None
    autoreset: str
    operation: str
    kind: str
    error: str
    seed: int | None = None
    rng: Any = None
    options: dict[str, Any] | None = None
    actions: Sequence[Any] = ()
    action: Any = None
    arguments: tuple[Any, ...] = ()
    traceback: str = ""
    episode: int | None = 0
    step: int | None = 0
    complete: bool = True
    missing: tuple[str, ...] = ()
    factory_text: str = ""
    version: int = VERSION
    agym_version: str = field(default_factory=agym_version_here)
    python_version: str = field(default_factory=platform.python_version)
    gymnasium_version: str = gymnasium.__version__

    def __post_init__(self) -> None:
        if not self.factory_text:
            object.__setattr__(self, "factory_text", describe_factory(self.factory))


def describe_factory(factory: Any) -> str:
    """Describe what a factory makes in one line, as one would write the call."""
    arguments: list[Any] = []
    keywords: dict[str, Any] = {}
    while isinstance(factory, partial):
        arguments = [*factory.args, *arguments]
        keywords = {**factory.keywords, **keywords}
        factory = factory.func
    given = [shown(each.id if isinstance(each, EnvSpec) else each) for each in arguments]
    given += [f"{name}={shown(value)}" for name, value in keywords.items()]
    if factory is gymnasium.make:
        name = "gymnasium.make"
    elif hasattr(factory, "__qualname__"):
        name = f"{getattr(factory, '__module__', None)}.{factory.__qualname__}"
    else:
        name = shown(factory)
    return f"{name}({', '.join(given)})"


def shown(value: Any) -> str:
    """Format a value in one line of limited length, even if its ``repr`` raises."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def words(error: BaseException) -> str:
    """Format an exception in one line, even if its ``str`` raises."""
    try:
        return " ".join(f"{type(error).__name__}: {error}".split())
    except Exception:
        return type(error).__name__
