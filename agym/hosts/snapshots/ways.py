"""The ways to copy an environment, best first, and which of them is exact for which kind.

The first snapshot of a kind of environment (its class, wrappers and arguments) proves the ways in
turn (``proving.py``), and the first one that is exact is taken from then on. Where none is, the
episode is replayed, if its actions were recorded.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from agym._system.pickling import dumps, dumps_by_value
from agym.hosts.episode import Episode
from agym.hosts.snapshots import attributes
from agym.hosts.snapshots.codecs import registered
from agym.hosts.snapshots.proving import refute
from agym.hosts.snapshots.replaying import Record, replay
from agym.hosts.snapshots.whole import pack_env, unpack_env

WayName = Literal["protocol", "attributes", "whole", "replay", "coroutine", "program"]


class Packed(NamedTuple):
    """The data of a state between two processes, which only hosts need understand."""

    pickled: bytes


class EnvState(NamedTuple):
    """The state of one environment between two steps, with its host's record of it.

    Attributes:
        way: How it was taken: by the environment's own protocol, as its attributes, as a pickle of
            the whole, as its actions, by the methods of a coroutine environment, or by those of a
            ``VectorEnv``.
        detail: What was copied how, in a few words.
        data: The state of the environment itself, as the way has it.
        episode: Its episode: phase, number, seed, options.
        steps: Steps of this episode so far.
        statistics: The episode's statistics so far.
        observation: The last one.
        info: That of the same row.
        flags: Whether it was terminated, and truncated.
    """

    way: WayName
    detail: str
    data: Any
    episode: Episode
    steps: int
    statistics: Any
    observation: Any
    info: dict[str, Any]
    flags: tuple[bool, bool]

    def packed(self) -> EnvState:
        """Return it with its data pickled, for another process.

        Raises:
            Exception: They cannot be pickled.
        """
        if isinstance(self.data, Packed):
            return self
        return self._replace(data=Packed(dumps(self.data)))

    def unpacked(self) -> EnvState:
        """Return it with its data as they were taken."""
        if not isinstance(self.data, Packed):
            return self
        return self._replace(data=pickle.loads(self.data.pickled))


def _replay(env: Any, record: Record) -> Any:
    replay(env, record)
    return env


class Way(NamedTuple):
    """A way to copy environments.

    Attributes:
        take: Returns the state of an environment.
        put: Sets the state of an environment, and returns it or another in its place.
    """

    take: Callable[[Any], Any]
    put: Callable[[Any, Any], Any]


def _put(env: Any, state: attributes.State, *, use_protocol: bool) -> Any:
    attributes.put(env, state, use_protocol=use_protocol)
    return env


# Best first. For the others that a name may say, hosts have the code.
WAYS: dict[WayName, Way] = {
    "protocol": Way(partial(attributes.take, use_protocol=True), partial(_put, use_protocol=True)),
    "attributes": Way(attributes.take, partial(_put, use_protocol=False)),
    "whole": Way(pack_env, lambda _, state: unpack_env(state)),
}

# Without a protocol, that way would be the next.
_ALL = [*WAYS]
_WITHOUT_PROTOCOL = _ALL[1:]


class Copy(NamedTuple):
    """What a way has taken of an environment; the first fields of :class:`EnvState`."""

    way: WayName
    detail: str
    data: Any


class Proof(NamedTuple):
    """What is known of a way to copy a kind of environment.

    Attributes:
        way: The way.
        why: Why it is not exact, ``""`` if it is.
        detail: What it copies.
    """

    way: WayName
    why: str
    detail: str


# By kind of environment and way.
_proofs: dict[tuple[Any, WayName], Proof] = {}
_lock = threading.Lock()


def kind_of(env: Any, factory: Any) -> Any:
    """Return what environments have in common for which one proof is enough, besides classes.

    That is the spec with its arguments, or the factory.
    """
    while hasattr(factory, "_factory"):  # agym's own, around the caller's
        factory = factory._factory
    spec = getattr(env, "spec", None)
    what = factory if spec is None else (spec.id, spec.kwargs, spec.additional_wrappers)
    try:
        return dumps_by_value(what)
    except Exception:
        return object()  # equal to no other's, whichever ids are used again


def copy_env(
    env: Any,
    kind: Any,
    make: Callable[[], Any] | None,
    used: Sequence[Any],
    record: Callable[[], Record | None] = lambda: None,
) -> Copy | str:
    """Copy an environment by the first way that is exact, or return why there is none.

    Args:
        env: The environment.
        kind: From :func:`kind_of`.
        make: Makes one of the same kind, for a proof; ``None`` to rely on earlier proofs.
        used: All environments of the host.
        record: Returns the record of its episode, if there is one.
    """
    reasons: list[str] = []
    classes = _classes_of(env)
    for name in _ways_of(classes):
        _, why, detail = _prove(env, classes, kind, name, make, used)
        if not why:
            try:
                return Copy(name, detail, WAYS[name].take(env))
            except Exception as error:
                why = str(error)
        if not any(why in reason for reason in reasons):
            reasons.append(why)
    known = record()
    if known is not None:
        proof = _prove(env, classes, kind, "replay", make, used)
        if not proof.why:
            return Copy("replay", f"its actions, since {'; '.join(reasons)}", known)
        reasons.append(f"and of a replay: {proof.why}")
    return "; ".join(reasons)


def prove(env: Any, kind: Any, make: Callable[[], Any], used: Sequence[Any]) -> list[Proof]:
    """Prove the ways to copy an environment, best first, until one is exact."""
    proofs: list[Proof] = []
    classes = _classes_of(env)
    for name in _ways_of(classes):
        proofs.append(_prove(env, classes, kind, name, make, used))
        if not proofs[-1].why:
            break
    return proofs


def import_proofs(env: Any, kind: Any, proofs: Sequence[Proof]) -> None:
    """Take over what another process has proven for an environment of the same kind."""
    known = registered().version, kind, _classes_of(env)
    with _lock:
        for proof in proofs:
            _proofs.setdefault((known, proof.way), proof)


def _classes_of(env: Any) -> tuple[Any, ...]:
    return tuple(map(type, attributes.layers(env)))


def _ways_of(classes: tuple[Any, ...]) -> list[WayName]:
    return _ALL if attributes.with_protocol(classes) else _WITHOUT_PROTOCOL


def _prove(
    env: Any,
    classes: tuple[Any, ...],
    kind: Any,
    name: WayName,
    make: Callable[[], Any] | None,
    used: Sequence[Any],
) -> Proof:
    key = (registered().version, kind, classes), name
    with _lock:
        known = _proofs.get(key)
        if known is None:
            if make is None:
                return Proof(name, "it is not proven", "")
            if name == "replay":
                why, detail = refute(lambda _, record: record, _replay, make, used), ""
            else:
                take, put = WAYS[name]
                why = refute(lambda env, _: take(env), put, make, used)
                detail = _detail(env, name)
            known = _proofs[key] = Proof(name, why, detail)
        return known


def _detail(env: Any, name: WayName) -> str:
    if name == "whole":
        return "a pickle of the whole"
    parts = [f"the state of {kind}" for kind in attributes.simulators_of(env)]
    if name == "protocol":
        own = attributes.with_protocol(_classes_of(env))
        parts += [f"what {kind} gives as its state" for kind in own]
    return " and ".join([*parts, "the attributes of all layers"])
