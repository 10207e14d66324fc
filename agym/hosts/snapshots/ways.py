"""The ways to copy an environment, best first, and which of them is exact for which kind.

The first snapshot of a kind of environment (its class and its wrappers) proves the ways in turn
(``proving.py``), and the first one that is exact is taken from then on. Where none is, the episode
is replayed, if its actions were recorded.
"""

from __future__ import annotations

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


class Copy(NamedTuple):
    """What a way has taken of an environment; the first fields of :class:`EnvState`."""

    way: WayName
    detail: str
    data: Any


# For each kind of environment and way: why it is not exact, else ``""``; and what it copies.
_proofs: dict[Any, tuple[str, str]] = {}
_lock = threading.Lock()


def copy(env: Any, make: Callable[[], Any], used: Sequence[Any]) -> Copy | str:
    """Copy an environment by the first way that is exact, or return why there is none.

    Args:
        env: The environment.
        make: Makes one of the same kind.
        used: All environments of the host.
    """
    kind = (registered().version, *map(type, attributes.layers(env)))
    reasons: list[str] = []
    for name, way in WAYS.items():
        if name == "protocol" and not attributes.with_protocol(env):
            continue  # it would be the next
        try:
            data = way.take(env)
        except Exception as error:
            why = str(error)
        else:
            with _lock:
                if (kind, name) not in _proofs:
                    _proofs[kind, name] = refute(*way, make, used), _detail(env, name)
                why, detail = _proofs[kind, name]
            if not why:
                return Copy(name, detail, data)
        if why not in reasons:
            reasons.append(why)
    return "; ".join(reasons)


def _detail(env: Any, name: WayName) -> str:
    if name == "whole":
        return "a pickle of the whole"
    parts = [f"the state of {kind}" for kind in attributes.simulators_of(env)]
    if name == "protocol":
        parts += [f"what {kind} gives as its state" for kind in attributes.with_protocol(env)]
    return " and ".join([*parts, "the attributes of all layers"])
