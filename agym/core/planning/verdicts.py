"""Whether a twin may be used: compared with its originals once per machine, and remembered."""

from __future__ import annotations

import importlib.metadata
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from types import FunctionType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator

from agym.core._system.isolation import undisturbed
from agym.core._system.pickling import dumps_by_value
from agym.core.hosts.vector.twins import Wrapping, as_bytes, twin_of
from agym.core.planning.caching import last_change, recall_verdict, remember_verdict
from agym.core.planning.twin_check import difference

# Of the check before the first use: steps of each environment, number of environments, and the
# steps of their episodes.
STEPS, NUM_ENVS, LENGTH = 200, 8, 25

# The attributes of classes that are compared with those of a verdict.
CODE = FunctionType, int, float, str, list, np.ndarray

# Packages whose versions a verdict depends on, besides those of every record.
PACKAGES = ("mujoco", "numba")

log = logging.getLogger("agym")


@dataclass(frozen=True)
class Verdict:
    """The result of comparing a twin with its originals.

    Attributes:
        steps: The number of steps that were compared.
        difference: The first difference, or why there is no twin; ``""`` if they are equal.
        proven: The caller asked for a long comparison.
    """

    steps: int
    difference: str
    proven: bool = False

    @property
    def equal(self) -> bool:
        """Whether the twin may be used."""
        return not self.difference

    @classmethod
    def stored(cls, record: Any) -> Verdict | None:
        """Return a verdict from disk; ``None`` if it is unreadable."""
        types = {"steps": int, "difference": str, "proven": bool}
        if not isinstance(record, dict) or {k: type(v) for k, v in record.items()} != types:
            return None
        return cls(**record)

    def __str__(self) -> str:
        if self.difference:
            return self.difference
        proven = "proven to be " if self.proven else ""
        return f"{proven}equal to the original in {self.steps:,} steps on this machine"


# What is known in this process, by the same names as on disk.
_known: dict[bytes, Verdict] = {}


def verdict_on(
    spec: EnvSpec,
    chain: Sequence[Wrapping] = (),
    steps: int | None = None,
    progress: Callable[[int], object] = lambda steps: None,
) -> Verdict:
    """Return whether the twin of an environment is equal to the originals.

    The first time on a machine, this compares them, which takes about a second.

    Args:
        spec: The environment's spec, with the arguments of its constructor.
        chain: The wrappers around it.
        steps: Compare them now, for so many steps of each environment.
        progress: Called with the number of steps of each environment, after each step.
    """
    twin, why = twin_of(spec)
    if twin is None:
        return Verdict(0, why)
    keywords = {**spec.kwargs, **({"render_mode": None} if "render_mode" in spec.kwargs else {})}
    original: Any = load_env_creator(str(spec.entry_point))
    code = code_of(original), code_of(twin), code_of(getattr(twin, "family", object))
    parts = spec.entry_point, keywords, chain, twin, code, platform_versions()
    try:
        name = dumps_by_value(parts)
    except Exception:  # an argument can't be pickled
        name = repr(parts).encode()
    verdict = None
    if steps is None:
        verdict = _known.get(name) or Verdict.stored(recall_verdict(name))
    if verdict is None:
        started = time.perf_counter()
        found = compare(spec, twin, keywords, chain, steps or STEPS, progress)
        verdict = Verdict((steps or STEPS) * NUM_ENVS, found, proven=steps is not None)
        took = time.perf_counter() - started
        log.info("the twin of %s was compared in %.1f s: %s", spec.id, took, verdict)
        remember_verdict(name, asdict(verdict))
    _known[name] = verdict
    return verdict


def platform_versions() -> list[str]:
    """Return the versions and the instructions of the CPU that results may depend on."""
    found = [str(np.show_config(mode="dicts").get("SIMD Extensions"))]
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{package} {importlib.metadata.version(package)}")
    return found


def code_of(cls: Any) -> list[Any]:
    """Return what changes if the code of a class does, in its file or by assignment."""
    code = []
    for each in [] if cls is object else cls.__mro__[:-1]:
        parts = {k: as_bytes(v) for k, v in vars(each).items() if isinstance(v, CODE)}
        code.append((last_change(each), parts))
    return code


def compare(
    spec: EnvSpec,
    twin: Any,
    keywords: dict[str, Any],
    chain: Sequence[Wrapping],
    steps: int,
    progress: Callable[[int], object],
) -> str:
    """Return the first difference between a twin and its originals, ``""`` if there is none."""
    make = partial(
        gymnasium.make, spec, max_episode_steps=LENGTH, disable_env_checker=True, **keywords
    )

    def make_twin(num_envs: int, mode: Any) -> Any:
        wrapped = {"chain": chain} if chain else {}
        return twin(
            num_envs=num_envs, autoreset_mode=mode, max_episode_steps=LENGTH,
            **keywords, **wrapped,
        )  # fmt: skip

    def original() -> Any:
        env = KeptOpen(next(originals))
        for wrapping in chain:
            env = wrapping.around(env)
        return env

    stepped = "original"
    try:
        with undisturbed(), getattr(twin, "quiet", nullcontext)(), ExitStack() as stack:
            made = [stack.enter_context(closing(make())) for _ in range(NUM_ENVS)]
            originals = cycle(made)  # making them can take longer than stepping them
            stepped = "twin"
            return difference(original, make_twin, steps, NUM_ENVS, progress)
    except Exception as error:
        return f"its {stepped} raised {type(error).__name__}: {error}"


class KeptOpen(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that is used again after ``close``."""

    def close(self) -> None:
        """Do nothing."""
