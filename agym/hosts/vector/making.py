"""Making one batched environment: a program that is a ``gymnasium.vector.VectorEnv``.

What such a program can do beyond Gymnasium's base class cannot be asked, so all that is known
of particular ones (Gymnasium's own, ALE's, EnvPool's) is in this file: see :class:`Traits`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from agym.errors import UsageError
from agym.hosts.episode import name_of
from agym.protocol.arguments import check_made
from agym.protocol.messages import Description
from agym.protocol.typing import Array

SeedList = Sequence[int | None]

# The constructor's keyword in Gymnasium's, ALE's and other vector environments.
MODE_KEYWORD = "autoreset_mode"


@dataclass(frozen=True)
class VectorFactory:
    """Makes a batch of as many environments as a worker has.

    Attributes:
        build: The class or function, which takes ``num_envs=``; or what is registered.
        keywords: More keywords for it.
    """

    build: Callable[..., Any] | EnvSpec
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, num_envs: int = 1, first: int = 0, mode: AutoresetMode | None = None) -> Any:
        """Make one.

        Args:
            num_envs: How many environments it is to have.
            first: Id of the first one.
            mode: What should follow an episode's end, if that can be told to its constructor.
        """
        keywords = {"num_envs": num_envs, **self.keywords}
        seed = keywords.get("seed")
        if isinstance(seed, int) and first:
            # Environment i gets seed + i, as in Gymnasium, so that no two workers play the same.
            keywords["seed"] = seed + first
        parameter = self.parameters.get(MODE_KEYWORD)
        # A finished environment is held by the host, whatever the mode, and ALE has no DISABLED.
        wanted = mode not in (None, AutoresetMode.DISABLED) and MODE_KEYWORD not in keywords
        if wanted and parameter is not None and _mode(parameter.default) is not mode:
            keywords[MODE_KEYWORD] = mode
        copies = self.parameters.get("copy")
        if copies is not None and copies.default is True:
            keywords.setdefault("copy", False)  # the host copies what it gets
        env = self._build(**keywords)
        check_made(env)
        if first and _is_envpools(env) and not isinstance(seed, int):
            env.close()
            raise UsageError(
                f"{type(env).__name__} gets its seed from its constructor alone, so all workers"
                " would play the same: pass seed=, to which each worker adds its first environment"
            )
        return env

    @property
    def _build(self) -> Callable[..., Any]:
        if isinstance(self.build, EnvSpec):
            return partial(gymnasium.make_vec, self.build, vectorization_mode="vector_entry_point")
        return self.build

    def takes(self, keyword: str) -> bool:
        """Whether a keyword may be passed, as far as that can be told."""
        parameters = self.parameters
        kinds = {parameter.kind for parameter in parameters.values()}
        return keyword in parameters or not parameters or inspect.Parameter.VAR_KEYWORD in kinds

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """What the constructor takes, as far as it tells."""
        build: Any = self.build
        if isinstance(build, EnvSpec):
            build = build.vector_entry_point
            build = load_env_creator(build) if isinstance(build, str) else build
        try:
            return inspect.signature(build).parameters
        except (TypeError, ValueError):
            return {}


@dataclass(frozen=True)
class ExistingFactory:
    """Gives a vector environment that the caller has made; there is only this one."""

    env: list[Any]

    def __call__(self, **_: Any) -> Any:
        """Give it."""
        if not self.env:
            raise UsageError(
                "a VectorEnv that was made by the caller cannot be made again: give agym a class"
                " or a factory that takes num_envs="
            )
        return self.env.pop()


@dataclass(frozen=True)
class Traits:
    """What a vector environment can do.

    Attributes:
        mode: What follows an episode's end.
        reset_mask: It resets some environments by ``options={"reset_mask": ...}``.
        seeds: The form in which it takes seeds that are not consecutive: ``"list"`` (an entry per
            environment, as Gymnasium's own), ``"array"`` (one per environment that is reset, as
            ALE's), ``"none"`` if it only takes an integer.
        renders_ids: ``render`` takes ``env_ids``, and gives one frame without (EnvPool).
        batch_size: It gives results of so many environments at a time; 0 for all together.
        compiled: It takes actions in the dtype of their space alone (ALE, EnvPool).
    """

    mode: AutoresetMode
    reset_mask: bool
    seeds: str
    renders_ids: bool
    batch_size: int = 0
    compiled: bool = False

    @classmethod
    def of(cls, env: Any) -> Traits:
        """Look at one.

        Raises:
            UsageError: It does not say what follows an episode's end.
        """
        mode = _mode(getattr(env.unwrapped, MODE_KEYWORD, None))
        # ALE writes its mode into the dict of the base class, which is nobody else's mode.
        if mode is None and env.metadata is not VectorEnv.metadata:
            mode = _mode(env.metadata.get(MODE_KEYWORD))
        if mode is None:
            raise UsageError(
                f"{type(env).__name__} does not say what follows an episode's end: give it"
                f" metadata={{{MODE_KEYWORD!r}: gymnasium.vector.AutoresetMode...}}"
            )
        ales, pools, gymnasiums = (_is_ales(env), _is_envpools(env), _is_gymnasiums(env))
        # By Gymnasium's definition of the mode, or since it is known, or says so.
        masks = mode is AutoresetMode.DISABLED or ales or pools or gymnasiums
        return cls(
            mode,
            masks or bool(env.metadata.get("reset_mask")),
            "array" if ales else "list" if gymnasiums else env.metadata.get("reset_seeds", "none"),
            pools,
            _batch_size(env),
            ales or pools,
        )

    def unsupported_mode(self, asked: AutoresetMode, name: str) -> str | None:
        """Say why an ``autoreset`` mode cannot be had, if it cannot."""
        held = asked is AutoresetMode.DISABLED
        by_mask = asked is AutoresetMode.SAME_STEP and self.reset_mask
        if asked is self.mode or held or by_mask:
            return None
        return (
            f"{name} has autoreset_mode={self.mode.name}, and cannot do what"
            f" autoreset={name_of(asked)!r} wants:"
            f" take autoreset={name_of(self.mode)!r} or backend='process'"
        )

    def seed_argument(self, seeds: SeedList | None, mask: Array) -> Any:
        """The seeds of a reset in a form in which they are taken.

        Args:
            seeds: One per environment that is reset, ``None`` for no seeds at all.
            mask: Which ones are, ``bool[num_envs]``.
        """
        if seeds is None:
            return None
        if self.seeds == "array":
            return np.array([-1 if seed is None else seed for seed in seeds])  # as ALE has it
        if mask.all() and is_consecutive(seeds):
            return seeds[0]
        if self.seeds == "none":
            raise UsageError(SEEDS)
        every: list[int | None] = [None] * len(mask)
        for i, seed in zip(np.flatnonzero(mask).tolist(), seeds, strict=True):
            every[i] = seed
        return every

    def unsupported_reset(self, whole: bool, seeds: SeedList | None) -> str | None:
        """Say why some environments of one program cannot be reset with some seeds."""
        if not whole and not self.reset_mask:
            return "are one program, which is not known to reset some of them: reset all of them"
        seeded = seeds is not None and any(seed is not None for seed in seeds)
        if not seeded or self.seeds != "none" or (whole and is_consecutive(seeds or [])):
            return None
        return f"{SEEDS}: reset all of them with one integer, which gives environment i seed + i"

    def unsupported_batch(self, count: int) -> str | None:
        """Say why so many environments of one program cannot be sent, if they cannot."""
        if count % self.batch_size == 0:
            return None
        return (
            f"come {self.batch_size} at a time, and would be waited for in vain if {count} of them"
            f" were sent: name a multiple of {self.batch_size} of them"
        )


SEEDS = "are one program, which takes an integer as seed of all of them"


def is_consecutive(seeds: SeedList) -> bool:
    """Whether each seed is its predecessor plus one."""
    first = seeds[0]
    return first is not None and list(seeds) == list(range(first, first + len(seeds)))


def check_vector(env: Any, num_envs: int) -> None:
    """Check what a factory made.

    Raises:
        UsageError: It has another number of environments, or is no vector environment.
    """
    name = type(env).__name__
    if not hasattr(env, "num_envs") or not hasattr(env, "single_observation_space"):
        raise UsageError(
            f"{name} is no gymnasium.vector.VectorEnv, which backend='native' takes: take"
            " backend='process', or another one, for single environments"
        )
    if env.num_envs != num_envs:
        raise UsageError(
            f"{name} has num_envs={env.num_envs}, and num_envs={num_envs} was asked of its"
            " constructor: use that number"
        )
    batch_size = _batch_size(env)
    if batch_size and not all(hasattr(env, method) for method in POOL):
        raise UsageError(
            f"{name} has batch_size={batch_size}, and cannot be sent actions before others are"
            f" received: leave batch_size out and take workers={num_envs // batch_size} with"
            f" recv(min_envs={batch_size}), which gives the {batch_size} that are done first"
        )
    if batch_size and num_envs % batch_size:
        raise UsageError(
            f"{name} has batch_size={batch_size}, of which its num_envs={num_envs} is no multiple:"
            " some would never come"
        )


# What a program has whose environments are sent and received apart, as EnvPool's.
POOL = ("async_reset", "_reset", "send", "recv")


def unsupported_pool(env: Any, asked: AutoresetMode, traits: Traits) -> str | None:
    """Say why such a program cannot do what follows an episode's end, if it cannot."""
    if asked is traits.mode is AutoresetMode.NEXT_STEP:
        return None
    return (
        f"{type(env).__name__} has batch_size={traits.batch_size}, with which it takes no"
        f" autoreset={name_of(asked)!r}: pass autoreset='next_step', or leave batch_size out"
    )


def _batch_size(env: Any) -> int:
    """How many results a program gives at a time, 0 if those of all its environments."""
    for layer in (env, env.unwrapped):
        size = getattr(layer, "batch_size", None) or getattr(layer, "config", {}).get("batch_size")
        if size and size != env.num_envs:
            return int(size)
    return 0


def describe_vector(env: Any) -> Description:
    """Say what the environments of a batch are like."""
    spec = getattr(env, "spec", None)
    return Description(
        env.single_observation_space,
        env.single_action_space,
        dict(env.metadata or {}),
        spec if isinstance(spec, EnvSpec) else None,
        getattr(env, "render_mode", None),
    )


def _mode(value: Any) -> AutoresetMode | None:
    """Read a mode, which older environments write as text."""
    try:
        return AutoresetMode(value)
    except ValueError:
        return None


def _is_gymnasiums(env: Any) -> bool:
    return isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)


def _is_ales(env: Any) -> bool:
    return type(env.unwrapped).__module__.startswith("ale_py.")


def _is_envpools(env: Any) -> bool:
    return any(base.__module__.startswith("envpool.") for base in type(env.unwrapped).__mro__)
