"""Construction of ``gymnasium.vector.VectorEnv`` objects, and their known capabilities.

Gymnasium's base class has no way to ask a VectorEnv for its capabilities. So all knowledge about
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
    """Makes one VectorEnv with the environments of a worker.

    ``build`` is a class or function that takes ``num_envs=``, or a registered spec.
    """

    build: Callable[..., Any] | EnvSpec
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, num_envs: int = 1, first: int = 0, mode: AutoresetMode | None = None) -> Any:
        """Make a VectorEnv whose environments have ids from ``first`` on.

        ``mode`` is the requested autoreset mode, passed on if the constructor has a parameter.
        """
        keywords = {"num_envs": num_envs, **self.keywords}
        seed = keywords.get("seed")
        if isinstance(seed, int) and first:
            # Environment i gets seed + i, as in Gymnasium, so that no two workers share seeds.
            keywords["seed"] = seed + first
        parameter = self.parameters.get(MODE_KEYWORD)
        # The host repeats the rows of finished environments itself, in any mode, and ALE has no
        # DISABLED. Only agym's rule books leave a finished game, and its random numbers, unchanged.
        by_host = mode is AutoresetMode.DISABLED and not _has_halves(self._creator)
        if parameter is not None and not by_host and mode not in (None, _mode(parameter.default)):
            keywords.setdefault(MODE_KEYWORD, mode)
        copies = self.parameters.get("copy")
        if copies is not None and copies.default is True:
            keywords.setdefault("copy", False)  # the host copies the results
        env = self._build(**keywords)
        check_made(env)
        if first and _known_of(env) is ENVPOOL and not isinstance(seed, int):
            env.close()
            raise UsageError(
                f"{type(env).__name__} gets its seed only from its constructor, so all workers"
                " would have the same episodes: pass seed=; each worker adds its first environment"
            )
        return env

    @property
    def _build(self) -> Callable[..., Any]:
        if isinstance(self.build, EnvSpec):
            return partial(gymnasium.make_vec, self.build, vectorization_mode="vector_entry_point")
        return self.build

    def takes(self, keyword: str) -> bool:
        """Return whether a keyword may be passed, according to the signature."""
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
    """Returns a vector environment that the caller made; works once."""

    env: list[Any]

    def __call__(self, **_: Any) -> Any:
        if not self.env:
            raise UsageError(
                "a VectorEnv that the caller made cannot be made again: pass a class or a factory"
                " that takes num_envs="
            )
        return self.env.pop()


@dataclass(frozen=True)
class Traits:
    """The capabilities of a vector environment.

    Attributes:
        mode: Its autoreset mode.
        reset_mask: It resets some environments with ``options={"reset_mask": ...}``.
        seeds: The form of seeds that are not consecutive: ``"list"`` (an entry per environment, as
            in Gymnasium), ``"array"`` (an entry per environment that is reset, as in ALE), or
            ``"none"`` if it only accepts an integer.
        renders_ids: ``render`` accepts ``env_ids``, and returns one frame without (EnvPool).
        exact_dtype: It accepts actions only in the dtype of their space (ALE, EnvPool).
        steps_some: ``play`` takes a range of environments to step.
        two_halves: It is one of agym's rule books or twins, which step in two halves:
            ``play(actions)``, which does not keep the actions, and ``show_into(observations,
            rewards, terminated, truncated, finals, vector_infos)``, which writes the results into
            the caller's arrays and returns the info. Under DISABLED, a step leaves finished
            environments unchanged.
    """

    mode: AutoresetMode
    reset_mask: bool = False
    seeds: str = "none"
    renders_ids: bool = False
    exact_dtype: bool = False
    steps_some: bool = False
    two_halves: bool = False

    @classmethod
    def of(cls, env: Any) -> Traits:
        """Determine the traits of a vector environment.

        Raises:
            UsageError: It does not declare its autoreset mode.
        """
        mode = _mode(getattr(env.unwrapped, MODE_KEYWORD, None))
        # ALE writes its mode into the dict of the base class, which other classes share.
        if mode is None and env.metadata is not VectorEnv.metadata:
            mode = _mode(env.metadata.get(MODE_KEYWORD))
        if mode is None:
            raise UsageError(
                f"{type(env).__name__} does not declare its autoreset mode: give it"
                f" metadata={{{MODE_KEYWORD!r}: gymnasium.vector.AutoresetMode...}}"
            )
        traits = cls(mode, **_known_of(env), two_halves=env is env.unwrapped and _has_halves(env))
        # Gymnasium's definition of DISABLED requires it.
        return replace(traits, reset_mask=True) if mode is AutoresetMode.DISABLED else traits

    def unsupported_mode(self, requested: AutoresetMode, name: str) -> str | None:
        """Return why an ``autoreset`` mode is not available, ``None`` if it is."""
        by_host = requested is AutoresetMode.DISABLED
        by_mask = requested is AutoresetMode.SAME_STEP and self.reset_mask
        if requested is self.mode or by_host or by_mask:
            return None
        return (
            f"{name} has autoreset_mode={self.mode.name}, which does not allow"
            f" autoreset={name_of(requested)!r}:"
            f" use autoreset={name_of(self.mode)!r} or backend='process'"
        )

    def seed_argument(self, seeds: SeedList | None, mask: Array) -> Any:
        """Convert the seeds of a reset to the form that the VectorEnv accepts.

        There is a seed per environment, or none at all; ``mask`` selects the environments that are
        reset. Seeds that it does not accept were refused before, see :meth:`unsupported_reset`.
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
            return "are one VectorEnv, which cannot reset only some of them: reset all of them"
        seeded = seeds is not None and any(seed is not None for seed in seeds)
        if not seeded or self.seeds != "none" or (whole and is_consecutive(seeds or [])):
            return None
        return (
            "are one VectorEnv, which accepts one integer as the seed of all of them: reset all of"
            " them with an integer; environment i gets seed + i"
        )


# Known traits of other libraries' classes, by the start of their modules' names.
GYMNASIUM: Final = {"reset_mask": True, "seeds": "list"}
ALE: Final = {"reset_mask": True, "seeds": "array", "exact_dtype": True}
ENVPOOL: Final = {"reset_mask": True, "renders_ids": True, "exact_dtype": True}
KNOWN: Final[Mapping[str, Mapping[str, Any]]] = {
    "gymnasium.vector.sync_vector_env": GYMNASIUM,
    "gymnasium.vector.async_vector_env": GYMNASIUM,
    "ale_py.": ALE,
    "envpool.": ENVPOOL,
}


def _known_of(env: Any) -> Mapping[str, Any]:
    """Return the traits that an environment's class implies, else the ones that it declares."""
    for base in type(env.unwrapped).__mro__:
        for module, traits in KNOWN.items():
            if base.__module__.startswith(module):
                return traits
    declared = env.metadata
    return {
        "reset_mask": bool(declared.get("reset_mask")),
        "seeds": declared.get("reset_seeds", "none"),
        "renders_ids": bool(declared.get("renders_ids")),
        "steps_some": bool(declared.get("steps_some")),
    }


def _has_halves(program: Any) -> bool:
    """Return whether a class, or an environment, is one of agym's rule books or twins."""
    return bool(getattr(program, "same_games", False))


def is_consecutive(seeds: SeedList) -> bool:
    """Return whether each seed is its predecessor plus one."""
    first = seeds[0]
    return first is not None and list(seeds) == list(range(first, first + len(seeds)))


def check_vector(env: Any, num_envs: int) -> None:
    """Check the result of a factory.

    Raises:
        UsageError: It is not a vector environment, or its ``num_envs`` or ``batch_size`` is wrong.
    """
    name = type(env).__name__
    if not hasattr(env, "num_envs") or not hasattr(env, "single_observation_space"):
        raise UsageError(
            f"{name} is not a gymnasium.vector.VectorEnv, which backend='vector' requires: use"
            " another backend, such as 'process', for single environments"
        )
    if env.num_envs != num_envs:
        raise UsageError(
            f"{name} has num_envs={env.num_envs}, but its constructor was called with"
            f" num_envs={num_envs}: use that number"
        )
    for layer in (env, env.unwrapped):
        config = getattr(layer, "config", None)  # in EnvPool, a dict
        size = config.get("batch_size") if isinstance(config, Mapping) else None
        size = getattr(layer, "batch_size", None) or size
        if size and size != num_envs:
            raise UsageError(
                f"{name} has batch_size={size}, but agym steps all {num_envs} environments of a"
                " VectorEnv together: omit batch_size. With workers=N, there are N smaller"
                f" VectorEnvs, and recv(min_envs={size}) returns the first that are done"
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
    """Parse a mode, which older environments declare as a string."""
    try:
        return AutoresetMode(value)
    except ValueError:
        return None
