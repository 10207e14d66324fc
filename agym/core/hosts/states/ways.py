"""The ways to copy an environment, and the proofs of which one is exact for which kind.

The first snapshot of a kind of environment (its class, wrappers and arguments) proves the ways in
turn, and the first one that is exact is used from then on::

    attributes   of all layers, those with a protocol of their own by that
    attributes   of all layers, if such a protocol is not exact
    actions      of the episode, if they were recorded

Hosts copy coroutine environments and ``VectorEnv`` by their own methods, without a proof.

The proof needs two environments made for it. One is played to some point of an episode and copied
to the other, which was never reset. Then both take the same actions, and must do the same, bit for
bit: after each of many copies for a few steps, since what a copy lacks may matter only now and
then; and after the last for longer, through resets without a seed.
"""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from agym.core._system.isolation import undisturbed
from agym.core._system.pickling import dumps_by_value
from agym.core.hosts.states import by_attributes
from agym.core.hosts.states.by_attributes import layers
from agym.core.hosts.states.codecs import registered
from agym.core.hosts.states.env_state import Copy
from agym.core.hosts.states.episode_record import Record, note_start, replay

Envs = Callable[[], Iterable[Any]]


class Proof(NamedTuple):
    """What is known of a way to copy a kind of environment.

    Attributes:
        why: Why it is not exact, ``""`` if it is.
        detail: What it copies.
        use_protocols: Whether layers are copied by their own protocols.
    """

    why: str
    detail: str = ""
    use_protocols: bool = False


# By kind of environment and way.
_proofs: dict[Any, Proof] = {}
_lock = threading.Lock()


def kind_of(env: Any, factory: Any) -> Any:
    """Return a key: environments with equal keys and equal classes share one proof.

    That is the spec with its arguments, or the factory.
    """
    while hasattr(factory, "wrapped"):  # agym's own, around the caller's
        factory = factory.wrapped
    spec = getattr(env, "spec", None)
    what = factory if spec is None else (spec.id, spec.kwargs, spec.additional_wrappers)
    try:
        return dumps_by_value(what)
    except Exception:
        return object()  # equal to no other's, whichever ids are used again


def copy_env(
    env: Any,
    kind: Any,
    make: Callable[[], Any],
    used: Envs,
    record: Record | None = None,
) -> Copy | str:
    """Copy an environment by the first way that is exact, or return why there is none.

    Args:
        env: The environment.
        kind: From :func:`kind_of`.
        make: Makes one of the same kind, for a proof.
        used: Returns all environments of the host, for a proof.
        record: The record of its episode, if there is one.
    """
    copied = copy_attributes(env, prove("attributes", env, kind, make, used))
    if record is None or isinstance(copied, Copy):
        return copied
    why = prove("actions", env, kind, make, used).why
    if why:
        return f"{copied}; and by its actions: {why}"
    return Copy("actions", f"its actions, since {copied}", record.copy())


def copy_attributes(env: Any, proof: Proof) -> Copy | str:
    """Copy the attributes of an environment, or return why that is not possible.

    The proof is of the same kind of environment, perhaps of another process.
    """
    if proof.why:
        return proof.why
    try:
        data = by_attributes.take(env, use_protocols=proof.use_protocols)
        return Copy("attributes", proof.detail, data)
    except Exception as error:  # of this environment alone
        return str(error)


def prove(
    way: Literal["attributes", "actions"],
    env: Any,
    kind: Any,
    make: Callable[[], Any],
    used: Envs,
) -> Proof:
    """Prove a way to copy an environment, unless that was done for one of the same kind."""
    key = way, registered().version, kind, tuple(map(type, layers(env)))
    with _lock:
        known = _proofs.get(key)
        if known is None:
            if way == "actions":
                known = Proof(refute(lambda _, record: record, replay, make, used))
            else:
                known = _prove_attributes(env, make, used)
            _proofs[key] = known
        return known


def _prove_attributes(env: Any, make: Callable[[], Any], used: Envs) -> Proof:
    """Prove attributes with the protocols of layers, then without, since those may be wrong."""
    reasons = []
    for use_protocols in (True, False) if by_attributes.has_protocol(env) else (False,):
        take = partial(_take_attributes, use_protocols=use_protocols)
        why = refute(take, by_attributes.put, make, used)
        if not why:
            detail = by_attributes.describe(env, use_protocols=use_protocols)
            return Proof("", detail, use_protocols)
        reasons.append(why)
    return Proof("; ".join(dict.fromkeys(reasons)))


def _take_attributes(env: Any, _: Record, *, use_protocols: bool) -> by_attributes.State:
    return by_attributes.take(env, use_protocols=use_protocols)


# ---------------------------------------------------------------- proof by trial

# How many copies are made; the steps of both together after each, and after the last; and at most
# how many each takes alone before.
COPIES, FEW_STEPS, MORE_STEPS, STEPS_APART = 32, 4, 50, 5


def refute(
    take: Callable[[Any, Record], Any],
    put: Callable[[Any, Any], object],
    make: Callable[[], Any],
    used: Envs,
) -> str:
    """Return why a way is not exact, ``""`` if it is.

    Args:
        take: Returns the state of an environment, of which it also gets the record.
        put: Sets the state of an environment.
        make: Makes an environment.
        used: Returns the environments in use, which must not be touched.
    """
    made: list[Any] = []
    known = {id(layer) for env in used() for layer in layers(env)}
    with undisturbed():
        try:
            for _ in range(2):
                env = make()
                parts = {id(layer) for layer in layers(env)}
                if known & parts:
                    return "its factory returns an environment that is in use, and makes no other"
                known |= parts
                made.append(env)
            return _difference(take, put, *made)
        except (TypeError, pickle.PicklingError) as error:  # says what cannot be pickled
            return str(error)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            for env in made:
                with suppress(Exception):
                    env.close()


def _difference(
    take: Callable[[Any, Record], Any], put: Callable[[Any, Any], object], origin: Any, copied: Any
) -> str:
    rng, space = np.random.default_rng(0), copy.deepcopy(origin.action_space)
    space.seed(0)
    _, record = _reset(origin, seed=1)
    record = _play(origin, space, 23, record)
    for copies in range(1, COPIES + 1):
        put(copied, pickle.loads(pickle.dumps(take(origin, record))))
        for step in range(FEW_STEPS if copies < COPIES else MORE_STEPS):
            action = space.sample()
            one, other = origin.step(action), copied.step(action)
            if not _same(one[:4], other[:4]):
                return f"a copy went another way in step {step + 1} after it was made"
            record.actions.append(action)
            if one[2] or one[3] or step == MORE_STEPS // 2:
                observation, record = _reset(origin)
                if not _same(observation, copied.reset()[0]):
                    return "a copy began its next episode otherwise"
        record = _play(origin, space, int(rng.integers(STEPS_APART)), record)
        _play(copied, space, int(rng.integers(STEPS_APART)), Record(record.start, []))
    return ""


def _reset(env: Any, **arguments: Any) -> tuple[Any, Record]:
    """Reset an environment; return its observation, and the record of its episode."""
    record = Record(note_start(env, arguments), [])
    return env.reset(**arguments)[0], record


def _play(env: Any, space: Any, steps: int, record: Record) -> Record:
    """Play N random steps; return the record of the last episode."""
    for _ in range(steps):
        action = space.sample()
        result = env.step(action)
        record.actions.append(action)
        if result[2] or result[3]:
            _, record = _reset(env)
    return record


def _same(one: Any, other: Any) -> bool:
    """Return whether two results are equal to the last bit."""
    return bool(_plain(one) == _plain(other))


def _plain(value: Any) -> Any:
    """Return numbers and arrays as their bytes, so that not-a-number equals itself."""
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [type(value), *map(_plain, value)]
    return pickle.dumps(value)
