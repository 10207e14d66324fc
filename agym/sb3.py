"""Stable-Baselines3's ``make_vec_env`` for environments on agym's backends.

SB3 imports torch, so it is imported by the first call here, not by ``import agym``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agym.api.options.environments import find_spec
from agym.api.options.options import VecEnvOptions, parse_backend
from agym.backends import Vector
from agym.core._system.extras import require
from agym.core.hosts.factories import Factory
from agym.core.planning.sampling import TrustedFactory, is_trusted, name_of
from agym.core.protocol.arguments import check_count, check_made
from agym.errors import UsageError

if TYPE_CHECKING:
    from agym.api.sb3.vec_env import AgymVecEnv

__all__ = ["AgymVecEnv", "make_atari_env", "make_vec_env"]

AnyEnv = gymnasium.Env[Any, Any]


def make_vec_env(
    env_id: str | EnvSpec | Callable[..., AnyEnv],
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | None = None,
    wrapper_class: Callable[[AnyEnv], AnyEnv] | None = None,
    env_kwargs: dict[str, Any] | None = None,
    vec_env_kwargs: dict[str, Any] | None = None,
    monitor_kwargs: dict[str, Any] | None = None,
    wrapper_kwargs: dict[str, Any] | None = None,
    **options: Unpack[VecEnvOptions],
) -> AgymVecEnv:
    """Make environments as SB3's ``make_vec_env`` does, each in a ``Monitor``.

    It is one of :doc:`the four ways to make environments </reference/making>`.

    Args:
        env_id: An id, an ``EnvSpec``, or a function that makes an environment.
        n_envs: Number of environments.
        seed: Environment ``i`` gets ``seed + i`` at the next reset; ``None`` for random seeds.
        start_index: Index of the first environment, for names of monitor files and seeds of
            action spaces.
        monitor_dir: A folder for the monitors' files. An environment that is recreated after a
            fault starts a new file, unless ``monitor_kwargs`` are ``{"override_existing": False}``.
        wrapper_class: A wrapper for each environment and its monitor.
        env_kwargs: For the environment.
        vec_env_kwargs: For :class:`AgymVecEnv`.
        monitor_kwargs: For the monitor.
        wrapper_kwargs: For ``wrapper_class``.
        **options: Also for :class:`AgymVecEnv`: ``backend="process"``, ``workers=8``, ... With
            ``backend="vector"``, all environments are one vector environment, which must support
            same-step autoreset, as ALE's does. It has no monitor; wrap it in ``VecMonitor``.

    Returns:
        The environments, constructed and ready for ``reset``.

    Raises:
        UsageError: An argument is invalid (a ``ValueError``).
        EnvError: A constructor raised.
        MissingExtraError: SB3 is not installed.
    """
    check_count("n_envs", n_envs)
    if seed is not None:
        check_count("seed", seed, least=0)
    all_options = _join(vec_env_kwargs, options)
    if type(parse_backend(all_options.get("backend", "auto"))) is Vector:
        single: dict[str, Any] = {"monitor_dir": monitor_dir, "wrapper_class": wrapper_class}
        single |= {"monitor_kwargs": monitor_kwargs, "wrapper_kwargs": wrapper_kwargs}
        for name, value in single.items():
            if value is not None:
                raise UsageError(
                    f"{name} is for single environments, but backend='vector' runs one VectorEnv:"
                    " wrap it in SB3's VecMonitor, or another wrapper for a VecEnv"
                )
        envs = _vec_env_class().vector(env_id, n_envs, env_kwargs or {}, **all_options)
        envs.seed(None if seed is None else seed + start_index)
        return envs
    sample = None if wrapper_class else _sample(env_id, env_kwargs)
    return _make(
        "make_vec_env", env_id, sample, all_options, n_envs=n_envs, seed=seed,
        start_index=start_index, monitor_dir=monitor_dir, wrapper_class=wrapper_class,
        env_kwargs=env_kwargs, monitor_kwargs=monitor_kwargs, wrapper_kwargs=wrapper_kwargs,
    )  # fmt: skip


def make_atari_env(
    env_id: str | EnvSpec | Callable[..., AnyEnv],
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | None = None,
    wrapper_kwargs: dict[str, Any] | None = None,
    env_kwargs: dict[str, Any] | None = None,
    vec_env_kwargs: dict[str, Any] | None = None,
    monitor_kwargs: dict[str, Any] | None = None,
    **options: Unpack[VecEnvOptions],
) -> AgymVecEnv:
    """Make Atari environments as SB3's ``make_atari_env`` does; see :func:`make_vec_env`."""
    check_count("n_envs", n_envs)
    all_options = _join(vec_env_kwargs, options)
    if type(parse_backend(all_options.get("backend", "auto"))) is Vector:
        raise UsageError(
            "make_atari_env wraps single environments, but backend='vector' runs one VectorEnv: use"
            " agym.sb3.make_vec_env"
        )
    sample = _atari_sample(_sample(env_id, env_kwargs), wrapper_kwargs)
    return _make(
        "make_atari_env", env_id, sample, all_options, n_envs=n_envs, seed=seed,
        start_index=start_index, monitor_dir=monitor_dir, wrapper_kwargs=wrapper_kwargs,
        env_kwargs=env_kwargs, monitor_kwargs=monitor_kwargs,
    )  # fmt: skip


def _join(vec_env_kwargs: dict[str, Any] | None, options: Any) -> dict[str, Any]:
    """Join the options of ``vec_env_kwargs``, as in SB3, and of keywords, as in agym."""
    for name in {*(vec_env_kwargs or {})}.intersection(options):
        raise UsageError(f"{name} was passed twice: leave it out of vec_env_kwargs")
    return {**(vec_env_kwargs or {}), **options}


def _make(
    function: str, env: Any, sample: Factory | None, options: dict[str, Any], **arguments: Any
) -> AgymVecEnv:
    """Call SB3's function of this name, and have it make agym's ``VecEnv``."""
    vec_env_class = partial(_vec_env_class(), sample=sample)
    sb3 = require("stable_baselines3.common.env_util", "sb3")
    envs: AgymVecEnv = getattr(sb3, function)(
        _maker(env), vec_env_cls=vec_env_class, vec_env_kwargs=options, **arguments
    )
    return envs


def _maker(env: Any) -> Any:
    """Look up an id here, so that workers need not import the module that registers it."""
    if isinstance(env, str | EnvSpec):
        return partial(_make_from_spec, find_spec(env))
    return partial(_make_from_factory, env) if callable(env) else env


def _make_from_factory(factory: Callable[..., AnyEnv], **env_kwargs: Any) -> AnyEnv:
    """Make an environment; check it, because SB3's message would be about OpenAI Gym."""
    env = factory(**env_kwargs)
    check_made(env)
    return env


def _make_from_spec(spec: EnvSpec, **env_kwargs: Any) -> AnyEnv:
    """Make an environment, with ``render_mode="rgb_array"`` if it accepts that, as SB3 does."""
    try:
        return gymnasium.make(spec, **{"render_mode": "rgb_array", **env_kwargs})
    except TypeError:
        return gymnasium.make(spec, **env_kwargs)


def _sample(env: Any, env_kwargs: dict[str, Any] | None) -> Factory | None:
    """Return a factory that ``backend="auto"`` may measure; ``None`` if it runs the user's code."""
    if not isinstance(env, str | EnvSpec):
        return None
    factory = partial(gymnasium.make, find_spec(env), **(env_kwargs or {}))
    return factory if is_trusted(factory) else None


def _atari_sample(sample: Factory | None, wrapper_kwargs: dict[str, Any] | None) -> Factory | None:
    """Return the same factory with SB3's wrapper, which repeats actions and scales pictures."""
    if sample is None:
        return None
    wrapped = partial(_make_atari, sample, wrapper_kwargs or {})
    return TrustedFactory(wrapped, f"AtariWrapper({name_of(sample)})")


def _make_atari(sample: Factory, wrapper_kwargs: dict[str, Any]) -> Any:
    wrappers = require("stable_baselines3.common.atari_wrappers", "sb3")
    return wrappers.AtariWrapper(sample(), **wrapper_kwargs)


def _vec_env_class() -> type[AgymVecEnv]:
    require("stable_baselines3.common.vec_env", "sb3")
    # Imported here, because it imports SB3: the class is derived from SB3's ``VecEnv``.
    from agym.api.sb3.vec_env import AgymVecEnv

    return AgymVecEnv


def __getattr__(name: str) -> Any:
    """Import :class:`AgymVecEnv` when it is used."""
    if name == "AgymVecEnv":
        return _vec_env_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
