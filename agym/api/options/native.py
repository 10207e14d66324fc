"""Finds the vector environment that plays the same games as single environments.

It is the class of a rule book, or a twin that was compared with its originals. Other vector
environments, such as Gymnasium's CartPole, play different games with the same seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from copy import copy
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import wrappers
from gymnasium.envs.registration import EnvSpec, load_env_creator

from agym.api.options.environments import EnvLike, find_spec
from agym.core._system.isolation import NoRunningLoop
from agym.core.hosts.factories import (
    Factories,
    Factory,
    OneShotFactory,
    describe_first,
    innermost,
    reraise,
)
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
    def min_envs(self) -> int:
        """With fewer environments, ``backend="auto"`` uses the originals."""
        return getattr(self.spec and self.spec.vector_entry_point, "min_envs", 2)

    @property
    def renders(self) -> bool:
        """Whether its environments can be rendered."""
        return self.spec is not None and self.spec.kwargs.get("render_mode") is not None


# What a lookup returns: the vector environment; and the factories of single environments, which
# return those that were made for the lookup.
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
    elif native.is_twin and len(factories) < native.min_envs:
        why = f"its twin is faster only with {native.min_envs} environments or more"
        native = Native(None, why)
    return native, factories


def find_native(env: EnvLike, env_kwargs: dict[str, Any], factories: Factories) -> Found:
    """Find the vector environment that plays the same games.

    Args:
        env: As for :func:`agym.make`.
        env_kwargs: Keywords for the environment.
        factories: The factories of its environments. If they are the caller's, the first is called
            here; all are, in order, if it makes an environment that has a twin.
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
    limit = spec.kwargs.pop("max_episode_steps", None)
    spec.max_episode_steps = spec.max_episode_steps if limit is None else limit
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
    envs = [shot()]
    made, why = described(envs[0])
    for factory in factories[1:] if made is not None else ():
        try:
            envs.append(factory())
        except Exception as error:  # the backend reports it with its environment
            why = f"its factory raised {type(error).__name__}"
            failing = OneShotFactory(partial(reraise, error), factory)
            return Native(None, why), [*kept(envs, factories), failing, *factories[len(envs) + 1 :]]
        if any(envs[-1] is other for other in envs[:-1]):
            why = "its factory returns the same environment each time"
        elif described(envs[-1], made)[0] != made:
            why = "its factories make different environments"
        if why:
            break
    native = _twin(made.spec, made.chain) if made is not None and not why else Native(None, why)
    return native, [*kept(envs, factories), *factories[len(envs) :]]


def kept(envs: list[Any], factories: Factories) -> list[Factory]:
    """Return factories that return environments which were made, and new ones afterwards."""
    pairs = zip(envs, factories, strict=False)
    return [OneShotFactory(partial(identity, env), factory) for env, factory in pairs]


def identity(env: Any) -> Any:
    """Return an environment."""
    return env


@dataclass(eq=False)
class Made:
    """What a factory has made.

    Attributes:
        spec: The spec of the registered environment, with its limit of steps.
        chain: The wrappers around it, the innermost first, without those of ``gymnasium.make``.
        parts: The attributes of all of them.
    """

    spec: EnvSpec
    chain: tuple[Wrapping, ...]
    parts: list[dict[str, bytes]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Made) and _equal(self._all, other._all)

    @property
    def _all(self) -> tuple[Any, ...]:
        spec = self.spec
        return spec.id, spec.kwargs, spec.max_episode_steps, self.chain, tuple(self.parts)


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
    wrappings, parts = [Wrapping(type(each), saved_of(each)) for each in around], parts_of(env)
    if like is None:
        fresh = original(**spec.kwargs)
        for wrapping in wrappings:
            fresh = wrapping.around(fresh)
        with closing(fresh):
            if parts != parts_of(fresh):
                return None, f"its factory has changed {spec.id}, or has reset it"
    return Made(spec, tuple(wrappings[place:]), parts), ""


def saved_of(wrapper: Any) -> dict[str, Any]:
    """Return the arguments of a wrapper's constructor, which Gymnasium's record."""
    return {**getattr(wrapper, "_saved_kwargs", {})}


def _equal(one: Any, two: Any) -> bool:
    """Compare arguments; functions are equal if their code and the names of their module are."""
    if isinstance(one, FunctionType) and isinstance(two, FunctionType):
        return one.__code__ == two.__code__ and one.__globals__ is two.__globals__
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(_equal(one[key], two[key]) for key in one)
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(map(_equal, one, two))
    return type(one) is type(two) and bool(np.all(one == two))
