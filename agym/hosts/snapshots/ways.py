"""The ways to copy an environment, and the proofs of which one is exact for which kind.

The first snapshot of a kind of environment (its class, wrappers and arguments) proves the ways in
turn (``proving.py``), and the first one that is exact is used from then on::

    attributes   of all layers, those with a protocol of their own by that
    attributes   of all layers, if such a protocol is not exact
    actions      of the episode, if they were recorded

Hosts copy coroutine environments and ``VectorEnv`` by their own methods, without a proof.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from agym._system.pickling import dumps_by_value
from agym.hosts.snapshots import attributes
from agym.hosts.snapshots.codecs import registered
from agym.hosts.snapshots.proving import refute
from agym.hosts.snapshots.replaying import replay
from agym.hosts.snapshots.states import Copy, Record

ProvenWay = Literal["attributes", "actions"]


class Proof(NamedTuple):
    """What is known of a way to copy a kind of environment.

    Attributes:
        way: The way.
        why: Why it is not exact, ``""`` if it is.
        detail: What it copies.
        use_protocols: Whether layers are copied by their own protocols.
    """

    way: ProvenWay
    why: str
    detail: str = ""
    use_protocols: bool = False


# By kind of environment and way.
_proofs: dict[tuple[Any, ProvenWay], Proof] = {}
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
    _, why, detail, use_protocols = _proof_of("attributes", env, kind, make, used)
    if not why:
        try:
            data = attributes.take(env, use_protocols=use_protocols)
            return Copy("attributes", detail, data)
        except Exception as error:  # of this environment alone
            why = str(error)
    known = record()
    if known is None:
        return why
    proof = _proof_of("actions", env, kind, make, used)
    if proof.why:
        return f"{why}; and by its actions: {proof.why}"
    return Copy("actions", f"its actions, since {why}", known)


def prove(env: Any, kind: Any, make: Callable[[], Any], used: Sequence[Any]) -> list[Proof]:
    """Prove how to copy an environment whose actions were not recorded."""
    return [_proof_of("attributes", env, kind, make, used)]


def import_proofs(env: Any, kind: Any, proofs: Sequence[Proof]) -> None:
    """Use what another process has proven for an environment of the same kind."""
    known = _known_as(env, kind)
    with _lock:
        for proof in proofs:
            _proofs.setdefault((known, proof.way), proof)


def _known_as(env: Any, kind: Any) -> Any:
    return registered().version, kind, tuple(map(type, attributes.layers(env)))


def _proof_of(
    way: ProvenWay, env: Any, kind: Any, make: Callable[[], Any] | None, used: Sequence[Any]
) -> Proof:
    key = _known_as(env, kind), way
    with _lock:
        known = _proofs.get(key)
        if known is None:
            if make is None:
                return Proof(way, "it is not proven")
            if way == "actions":
                known = Proof(way, refute(lambda _, record: record, replay, make, used))
            else:
                known = _prove_attributes(env, make, used)
            _proofs[key] = known
        return known


def _prove_attributes(env: Any, make: Callable[[], Any], used: Sequence[Any]) -> Proof:
    """Prove attributes with the protocols of layers, then without, since those may be wrong."""
    reasons = []
    for use_protocols in (True, False) if attributes.has_protocol(env) else (False,):
        take = partial(attributes.take, use_protocols=use_protocols)
        why = refute(lambda env, _, take=take: take(env), attributes.put, make, used)
        if not why:
            detail = attributes.describe(env, use_protocols=use_protocols)
            return Proof("attributes", "", detail, use_protocols)
        reasons.append(why)
    return Proof("attributes", "; ".join(dict.fromkeys(reasons)))
