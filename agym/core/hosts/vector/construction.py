"""Construction of ``gymnasium.vector.VectorEnv`` objects, and what is known of them.

A VectorEnv cannot be asked what it can do beyond Gymnasium's base class, so everything known of
particular ones (Gymnasium's, ALE's, EnvPool's, agym's rule books) is in this file: see
:class:`Traits`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv

from agym.core.hosts.episode import name_of
from agym.core.protocol.arguments import check_made
from agym.core.protocol.messages.completions import Description
from agym.core.protocol.typing import Array
from agym.errors import UsageError

SeedList = Sequence[int | None]

# The constructor's keyword in vector environments of Gymnasium, ALE and others.
MODE_KEYWORD = "autoreset_mode"


@dataclass(frozen=True)
class VectorFactory:
    """Makes one VectorEnv with as many environments as a worker has.

    ``build`` is a class or function that takes ``num_envs=``, or a registered spec.
    """

    build: Callable[..., Any] | EnvSpec
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, num_envs: int = 1, first: int = 0, mode: AutoresetMode | None = None) -> Any:
        """Make a VectorEnv whose environments have ids from ``first`` on.

        ``mode`` is the wanted autoreset mode, passed on if the constructor takes one.
        """
        keywords = {"num_envs": num_envs, **self.keywords}
        seed = keywords.get("seed")
        if isinstance(seed, int) and first:
            # Environment i gets seed + i, as in Gymnasium, so that no two workers have equal seeds.
            keywords["seed"] = seed + first
        parameter = self.parameters.get(MODE_KEYWORD)
        # The host itself repeats the rows of finished environments, in any mode, and ALE has no
        # DISABLED. Only agym's rule books leave a finished game, and its random numbers, as it is.
        held = mode is AutoresetMode.DISABLED and not _is_rule_book(self._creator)
        if parameter is not None and not held and mode not in (None, _mode(parameter.default)):
            keywords.setdefault(MODE_KEYWORD, mode)
        copies = self.parameters.get("copy")
        if copies is not None and copies.default is True:
            keywords.setdefault("copy", False)  # the host copies the results
        env = self._build(**keywords)
        check_made(env)
        if first and _known_of(env) is ENVPOOL and not isinstance(seed, int):
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
        """Return whether a keyword may be passed, as far as the signature tells."""
        parameters = self.parameters
        kinds = {parameter.kind for parameter in parameters.values()}
        return keyword in parameters or not parameters or inspect.Parameter.VAR_KEYWORD in kinds

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The constructor's parameters; empty if it has no signature."""
        try:
            return inspect.signature(self._creator).parameters
        except (TypeError, ValueError):
            return {}

    @property
    def _creator(self) -> Any:
        build: Any = self.build
        if isinstance(build, EnvSpec):
            build = build.vector_entry_point
            build = load_env_creator(build) if isinstance(build, str) else build
        return build


@dataclass(frozen=True)
class ExistingFactory:
    """Returns a vector environment that the caller made, once."""

    env: list[Any]

    def __call__(self, **_: Any) -> Any:
        if not self.env:
            raise UsageError(
                "a VectorEnv that was made by the caller cannot be made again: give agym a class"
                " or a factory that takes num_envs="
            )
        return self.env.pop()


@dataclass(frozen=True)
class Traits:
    """The capabilities of a vector environment.

    Attributes:
        mode: Its autoreset mode.
        reset_mask: It resets some environments by ``options={"reset_mask": ...}``.
        seeds: How it takes seeds that are not consecutive: ``"list"`` (an entry per environment, as
            Gymnasium's own), ``"array"`` (one per environment that is reset, as ALE's), ``"none"``
            if it only takes an integer.
        renders_ids: ``render`` takes ``env_ids``, and returns one frame without (EnvPool).
        compiled: It takes actions only in the dtype of their space (ALE, EnvPool).
        rule_book: It is one of agym's rule books. These step in two halves: ``play(actions)``,
            which it does not keep, and ``show_into(observations, rewards, terminated, truncated,
            finals)``, which writes the results into arrays of the caller and returns the info.
            Under DISABLED, a step leaves finished environments as they are.
    """

    mode: AutoresetMode
    reset_mask: bool = False
    seeds: str = "none"
    renders_ids: bool = False
    compiled: bool = False
    rule_book: bool = False

    @classmethod
    def of(cls, env: Any) -> Traits:
        """Determine the traits of a vector environment.

        Raises:
            UsageError: It does not declare its autoreset mode.
        """
        mode = _mode(getattr(env.unwrapped, MODE_KEYWORD, None))
        # ALE writes its mode into the dict of the base class, which others share.
        if mode is None and env.metadata is not VectorEnv.metadata:
            mode = _mode(env.metadata.get(MODE_KEYWORD))
        if mode is None:
            raise UsageError(
                f"{type(env).__name__} does not say what follows an episode's end: give it"
                f" metadata={{{MODE_KEYWORD!r}: gymnasium.vector.AutoresetMode...}}"
            )
        traits = cls(mode, **_known_of(env), rule_book=env is env.unwrapped and _is_rule_book(env))
        # Gymnasium's definition of DISABLED requires it.
        return replace(traits, reset_mask=True) if mode is AutoresetMode.DISABLED else traits

    def unsupported_mode(self, asked: AutoresetMode, name: str) -> str | None:
        """Return why an ``autoreset`` mode is not available, ``None`` if it is."""
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
        """Convert the seeds of a reset to the form that the VectorEnv takes.

        There is one per environment, or none at all; ``mask`` are those that are reset. Seeds that
        it does not take have been refused before, see :meth:`unsupported_reset`.
        """
        if seeds is None:
            return None
        if self.seeds == "array":
            chosen = [seeds[i] for i in np.flatnonzero(mask).tolist()]
            return np.array([-1 if seed is None else seed for seed in chosen])  # ALE's no seed
        if mask.all() and is_consecutive(seeds):
            return seeds[0]
        return list(seeds)

    def unsupported_reset(self, whole: bool, seeds: SeedList | None) -> str | None:
        """Return why some environments of one VectorEnv cannot be reset with these seeds."""
        if not whole and not self.reset_mask:
            return "are one VectorEnv, which is not known to reset some of them: reset all of them"
        seeded = seeds is not None and any(seed is not None for seed in seeds)
        if not seeded or self.seeds != "none" or (whole and is_consecutive(seeds or [])):
            return None
        return (
            "are one VectorEnv, which takes an integer as seed of all of them: reset all of them"
            " with one integer, which gives environment i seed + i"
        )


# What is known of the classes of other libraries, by the beginning of their modules' names.
GYMNASIUM: Final = {"reset_mask": True, "seeds": "list"}
ALE: Final = {"reset_mask": True, "seeds": "array", "compiled": True}
ENVPOOL: Final = {"reset_mask": True, "renders_ids": True, "compiled": True}
KNOWN: Final[Mapping[str, Mapping[str, Any]]] = {
    "gymnasium.vector.sync_vector_env": GYMNASIUM,
    "gymnasium.vector.async_vector_env": GYMNASIUM,
    "ale_py.": ALE,
    "envpool.": ENVPOOL,
}


def _known_of(env: Any) -> Mapping[str, Any]:
    """Return the traits that the class of an environment implies, else those that it declares."""
    for base in type(env.unwrapped).__mro__:
        for module, traits in KNOWN.items():
            if base.__module__.startswith(module):
                return traits
    declared = env.metadata
    return {
        "reset_mask": bool(declared.get("reset_mask")),
        "seeds": declared.get("reset_seeds", "none"),
    }


def _is_rule_book(program: Any) -> bool:
    """Return whether a class, or an environment, is of one of agym's rule books."""
    return bool(getattr(program, "same_games", False))


def is_consecutive(seeds: SeedList) -> bool:
    """Return whether each seed is its predecessor plus one."""
    first = seeds[0]
    return first is not None and list(seeds) == list(range(first, first + len(seeds)))


def check_vector(env: Any, num_envs: int) -> None:
    """Check what a factory made.

    Raises:
        UsageError: It is not a vector environment, or its ``num_envs`` or ``batch_size`` is wrong.
    """
    name = type(env).__name__
    if not hasattr(env, "num_envs") or not hasattr(env, "single_observation_space"):
        raise UsageError(
            f"{name} is no gymnasium.vector.VectorEnv, which backend='vector' takes: take"
            " backend='process', or another one, for single environments"
        )
    if env.num_envs != num_envs:
        raise UsageError(
            f"{name} has num_envs={env.num_envs}, and num_envs={num_envs} was asked of its"
            " constructor: use that number"
        )
    for layer in (env, env.unwrapped):
        config = getattr(layer, "config", None)  # EnvPool's is a dict
        size = config.get("batch_size") if isinstance(config, Mapping) else None
        size = getattr(layer, "batch_size", None) or size
        if size and size != num_envs:
            raise UsageError(
                f"{name} has batch_size={size}, but agym steps all {num_envs} environments of a"
                " VectorEnv together: leave batch_size out. With workers=N, which makes N smaller"
                f" VectorEnvs, recv(min_envs={size}) gives the first that are done"
            )


def describe_vector(env: Any) -> Description:
    """Describe the environments of a batch."""
    spec = getattr(env, "spec", None)
    return Description(
        env.single_observation_space,
        env.single_action_space,
        dict(env.metadata or {}),
        spec if isinstance(spec, EnvSpec) else None,
        getattr(env, "render_mode", None),
    )


def _mode(value: Any) -> AutoresetMode | None:
    """Parse a mode, which older environments declare as text."""
    try:
        return AutoresetMode(value)
    except ValueError:
        return None
