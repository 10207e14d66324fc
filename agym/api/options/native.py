"""Finds the vector environment that plays the same games as single environments.

It is the class of a rule book, or a twin that was compared with its originals. Other vector
environments, such as Gymnasium's CartPole, play different games with the same seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from copy import copy
from types import FunctionType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import wrappers
from gymnasium.envs.registration import EnvSpec, load_env_creator

from agym.api.options.environments import EnvLike, find_spec
from agym.core._system.isolation import NoRunningLoop, undisturbed
from agym.core.hosts.factories import Factories, OneShotFactory, describe_first, innermost
from agym.core.hosts.vector.twins import NO_TWIN, Wrapping, parts_of, twin_of
from agym.core.planning.verdicts import verdict_on

# The wrappers that `gymnasium.make` adds, the innermost first; a twin needs none of them.
OF_MAKE = (wrappers.PassiveEnvChecker, wrappers.OrderEnforcing, wrappers.TimeLimit)


class Native(NamedTuple):
    """The vector environment that plays the games of an id, or of factories.

    Attributes:
        spec: Its spec, whose ``vector_entry_point`` makes it; ``None`` if there is none.
        why: For a twin, how it was compared; or why there is none.
    """

    spec: EnvSpec | None
    why: str = ""

    @property
    def is_twin(self) -> bool:
        """Whether it is a twin, and not the class of a rule book."""
        return self.spec is not None and bool(self.why)

    def remark(self, num_envs: int) -> str:
        """Return what to say about a twin that is used."""
        how = getattr(self.spec and self.spec.vector_entry_point, "how", lambda count: "")
        return ", ".join(filter(None, [how(num_envs), self.why])) if self.is_twin else ""

    @property
    def renders(self) -> bool:
        """Whether its environments can be rendered."""
        return self.spec is not None and self.spec.kwargs.get("render_mode") is not None


# What a lookup returns: the vector environment; and the factories of single environments, the first
# of which may return an environment that was made for the lookup.
Found = tuple[Native, Factories]


def native_for_auto(
    env: EnvLike, env_kwargs: dict[str, Any], factories: Factories, *, renders: bool = True
) -> Found:
    """Find the vector environment that ``backend="auto"`` may use, if no option is against it."""
    native, factories = find_native(env, env_kwargs, factories)
    if native.is_twin and native.renders and renders:
        # The caller may render all environments, which worker processes do on all cores.
        why = "its environments are rendered: use backend='twin' if you render only some of them"
        native = Native(None, why)
    return native, factories


def find_native(env: EnvLike, env_kwargs: dict[str, Any], factories: Factories) -> Found:
    """Find the vector environment that plays the same games.

    Args:
        env: As for :func:`agym.make`.
        env_kwargs: Keywords for the environment.
        factories: The factories of its environments. If they are the caller's, the first is called
            here; all are, if the first makes an environment that has a twin.
    """
    if isinstance(env, str | EnvSpec):
        return _native_of_id(find_spec(env), env_kwargs), factories
    return _native_of_factories(factories)


def _native_of_id(spec: EnvSpec, env_kwargs: dict[str, Any]) -> Native:
    if spec.additional_wrappers:
        return Native(None, "its spec has additional wrappers")
    if env_kwargs.get("render_mode") == "human":
        return Native(None, "it shows windows")
    spec = copy(spec)
    spec.kwargs = {**spec.kwargs, **env_kwargs}
    spec.kwargs.pop("disable_env_checker", None)
    spec.max_episode_steps = spec.kwargs.pop("max_episode_steps", None) or spec.max_episode_steps
    creator: Any = spec.vector_entry_point
    try:
        creator = load_env_creator(creator) if isinstance(creator, str) else creator
    except (ImportError, AttributeError):
        creator = None
    return Native(spec) if getattr(creator, "same_games", False) else _twin(spec, ())


def _twin(spec: EnvSpec, chain: tuple[Wrapping, ...]) -> Native:
    """Return the twin of a registered environment under wrappers, if it is equal."""
    verdict = verdict_on(spec, chain)
    if not verdict.equal:
        return Native(None, str(verdict))
    spec.vector_entry_point, _ = twin_of(spec)
    spec.kwargs = {**spec.kwargs, **({"chain": chain} if chain else {})}
    return Native(spec, str(verdict))


def batch_seconds(factory: Callable[..., Any], num_envs: int) -> float:
    """Return how long a batch of a twin takes, by some steps of another one."""
    with closing(factory(num_envs=num_envs)) as envs:
        envs.reset(seed=0)
        actions, times = envs.action_space.sample(), []
        for _ in range(5):
            started = time.perf_counter()
            envs.step(actions)
            times.append(time.perf_counter() - started)
    return min(times)


# ---------------------------------------------------------------- factories


def _native_of_factories(factories: Factories) -> Found:
    first = factories[0]
    if isinstance(innermost(first), type):
        return Native(None, f"a class that is not registered with Gymnasium {NO_TWIN}"), factories
    with NoRunningLoop():
        coroutines, made_first = describe_first(factories)
    shot = made_first[0]
    if coroutines or not isinstance(shot, OneShotFactory):
        return Native(None, f"what its factory makes {NO_TWIN}"), made_first
    env = shot()
    made, why = described(env)
    if made is None:
        return Native(None, why), [OneShotFactory(lambda: env, first), *factories[1:]]
    envs = [env]
    try:
        for factory in {id(factory): factory for factory in factories[1:]}.values():
            envs.append(factory())
            if envs[-1] is env:
                envs.clear()
                return Native(None, "its factory returns the same environment each time"), factories
            if not alike(described(envs[-1], made)[0], made):
                return Native(None, "its factories make different environments"), factories
        return _twin(made.spec, made.chain), factories
    except Exception as error:  # the backend reports it with its environment
        return Native(None, f"its factory raised {type(error).__name__}"), factories
    finally:
        with undisturbed():
            for each in envs:
                each.close()


class Made(NamedTuple):
    """What a factory has made.

    Attributes:
        spec: The spec of the registered environment, with its limit of steps.
        chain: The wrappers around it, the innermost first, without those of ``gymnasium.make``.
        parts: The environment's attributes, pickled.
    """

    spec: EnvSpec
    chain: tuple[Wrapping, ...]
    parts: dict[str, bytes]


def described(env: Any, like: Made | None = None) -> tuple[Made | None, str]:
    """Describe an environment that a twin may replace; or return why none can.

    Unless there is another that it must be like, a new environment shows whether it was changed.
    """
    base, around = env, list[Any]()
    while isinstance(base, gymnasium.Wrapper):
        around.insert(0, base)
        base = base.env
    spec = getattr(base, "spec", None)
    if spec is None or not isinstance(spec.entry_point, str):
        return None, f"{type(base).__name__}, which is not registered with Gymnasium, {NO_TWIN}"
    twin, why = twin_of(spec)
    if twin is None:
        return None, why
    original: Any = load_env_creator(spec.entry_point)
    if type(base) is not original:
        return None, f"{type(base).__name__} is not the class of {spec.id}"
    if base.render_mode == "human":
        return None, "it shows windows"
    spec, place = copy(spec), 0
    spec.max_episode_steps = None
    for kind in OF_MAKE:
        if place < len(around) and type(around[place]) is kind:
            spec.max_episode_steps = getattr(around[place], "_max_episode_steps", None)
            place += 1
    # A twin of the user's own may support no wrapper.
    check = getattr(twin, "reason_unsupported", lambda _: "is not among the wrappers of its twin")
    for wrapper in around[place:]:
        if why := check(wrapper):
            return None, f"the wrapper {type(wrapper).__name__} {why}"
    chain = tuple(Wrapping(type(each), saved_of(each)) for each in around[place:])
    parts, changed = parts_of(base), False
    if like is None:
        with closing(original(**spec.kwargs)) as fresh:
            changed = parts != parts_of(fresh)
    if changed:
        return None, f"its factory has changed {spec.id}, or has reset it"
    return Made(spec, chain, parts), ""


def saved_of(wrapper: Any) -> dict[str, Any]:
    """Return the arguments of a wrapper's constructor, which Gymnasium's record."""
    return {**getattr(wrapper, "_saved_kwargs", {})}


def alike(made: Made | None, other: Made) -> bool:
    """Return whether two factories have made the same environment."""
    if made is None:
        return False
    one, two = (
        (each.spec.id, each.spec.kwargs, each.spec.max_episode_steps, each.chain, each.parts)
        for each in (made, other)
    )
    return _equal(one, two)


def _equal(one: Any, two: Any) -> bool:
    """Compare arguments; functions are equal if their code and the names of their module are."""
    if isinstance(one, FunctionType) and isinstance(two, FunctionType):
        return one.__code__ == two.__code__ and one.__globals__ is two.__globals__
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(_equal(one[key], two[key]) for key in one)
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(map(_equal, one, two))
    return type(one) is type(two) and bool(np.all(one == two))
