"""The ways to copy an environment, best first, and which of them is exact for which kind.

The first snapshot of a kind of environment (its class and its wrappers) proves the ways in turn
(``proving.py``), and the first one that is exact is taken from then on. Where none is, the episode
is replayed, if its actions were recorded.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from agym.hosts.episode import Episode
from agym.hosts.snapshots import attributes
from agym.hosts.snapshots.codecs import registered
from agym.hosts.snapshots.proving import refute
from agym.hosts.snapshots.whole import pack_env, unpack_env

WayName = Literal["protocol", "attributes", "whole", "replay", "coroutine", "program"]


@dataclass(frozen=True, slots=True)
class EnvState:
    """The state of one environment between two steps, with its host's record of it.

    Attributes:
        way: How it was taken: by the environment's own protocol, as its attributes, as a pickle of
            the whole, as its actions, by the methods of a coroutine environment, or by those of a
            ``VectorEnv``.
        detail: What was copied how, in a few words.
        data: The state of the environment itself, as the way has it.
        episode: Its episode: phase, number, seed, options.
        age: Steps of this episode.
        tally: The episode's statistics so far.
        observation: The last one.
        flags: Whether it was terminated, and truncated.
    """

    way: WayName
    detail: str
    data: Any
    episode: Episode
    age: int
    tally: Any
    observation: Any
    flags: tuple[bool, bool]


class Way(NamedTuple):
    """A way to copy environments.

    Attributes:
        take: Returns the state of an environment.
        put: Sets the state of an environment, and returns it or another in its place.
    """

    take: Callable[[Any], Any]
    put: Callable[[Any, Any], Any]


def _put(env: Any, state: bytes, *, ask: bool) -> Any:
    attributes.put(env, state, ask=ask)
    return env


# Best first. For the others that a name may say, hosts have the code.
WAYS: dict[WayName, Way] = {
    "protocol": Way(partial(attributes.take, ask=True), partial(_put, ask=True)),
    "attributes": Way(attributes.take, partial(_put, ask=False)),
    "whole": Way(pack_env, lambda _, state: unpack_env(state)),
}

# For each kind of environment: the way that is exact and what it copies, or why there is none.
_proven: dict[Any, tuple[WayName, str] | str] = {}
_lock = threading.Lock()


def find_way(env: Any, make: Callable[[], Any], used: Sequence[Any]) -> tuple[WayName, str] | str:
    """Return the first way that is exact for an environment, or why there is none.

    Args:
        env: The environment.
        make: Makes one of the same kind.
        used: All environments of the host.
    """
    kind = (registered().version, *map(type, attributes.layers(env)))
    with _lock:
        if kind not in _proven:
            _proven[kind] = _prove(env, make, used)
        return _proven[kind]


def _prove(env: Any, make: Callable[[], Any], used: Sequence[Any]) -> tuple[WayName, str] | str:
    reasons: list[str] = []
    asked = attributes.with_protocol(env)
    for name, way in WAYS.items():
        if name == "protocol" and not asked:
            continue  # it would be the next
        try:
            pickle.dumps(way.take(env))
        except Exception as error:
            reason = str(error)
        else:
            reason = refute(*way, make, used)
        if not reason:
            return name, _detail(env, name, asked)
        if reason not in reasons:
            reasons.append(reason)
    return "; ".join(reasons)


def _detail(env: Any, name: WayName, asked: list[str]) -> str:
    if name == "whole":
        return "a pickle of the whole"
    parts = [f"the state of {kind}" for kind in attributes.simulators_of(env)]
    if name == "protocol":
        parts += [f"what {kind} gives as its state" for kind in asked]
    return " and ".join([*parts, "the attributes of all layers"])
