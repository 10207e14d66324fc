"""The ways to copy an environment, and the proofs that a way is exact for a kind of environment.

The first snapshot of a kind of environment (its class, wrappers and arguments) proves the ways in
turn. The first exact way is used from then on::

    attributes   of all layers, using the protocols of layers that have one
    attributes   of all layers, if such a protocol is not exact
    actions      of the episode, if they were recorded

Hosts copy coroutine environments and ``VectorEnv`` by their own methods, without a proof.

A proof needs two environments made for it. The first is played to some point of an episode and
copied to the second, which was never reset. Then both take the same actions, and must return the
same, bit for bit: for a few steps after each of many copies, because a missing part may matter only
now and then; and for longer after the last copy, including resets without a seed.
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
from agym.core.hosts.states.env_state import Copy, Record, note_start, replay

Envs = Callable[[], Iterable[Any]]


class Proof(NamedTuple):
    """The result of a proof of a way, for one kind of environment.

    Attributes:
        why: Why the way is not exact, ``""`` if it is.
        detail: What it copies.
        use_protocols: Whether to use the layers' protocols.
    """

    why: str
    detail: str = ""
    use_protocols: bool = False


# By kind of environment and way. The lock is held during a proof: a second thread waits for the
# result instead of repeating a proof that may take seconds.
_proofs: dict[Any, Proof] = {}
_lock = threading.Lock()


def kind_of(env: Any, factory: Any) -> Any:
    """Return a key: environments with equal keys and equal classes share one proof.

    It contains the spec with its arguments, or the factory.
    """
    while hasattr(factory, "wrapped"):  # a factory of agym around the caller's
        factory = factory.wrapped
    spec = getattr(env, "spec", None)
    what = factory if spec is None else (spec.id, spec.kwargs, spec.additional_wrappers)
    try:
        return dumps_by_value(what)
    except Exception:
        return object()  # equal to no other key, even if an id is reused


def copy_env(
    env: Any, kind: Any, make: Callable[[], Any], used: Envs, record: Record | None = None
) -> Copy | str:
    """Copy an environment by the first way that is exact, or return why there is none.

    Args:
        env: The environment.
        kind: From :func:`kind_of`.
        make: Makes another environment of the same kind, for a proof.
        used: Returns all environments of the host, for a proof.
        record: The record of its episode, if there is one.
    """
    copied = copy_attributes(env, prove("attributes", env, kind, make, used))
    if record is None or isinstance(copied, Copy):
        return copied
    why = prove("actions", env, kind, make, used).why
    if why:
        return f"{copied}; and by its actions: {why}"
    return Copy("actions", f"its actions, because {copied}", record.copy())


def copy_attributes(env: Any, proof: Proof) -> Copy | str:
    """Copy the attributes of an environment, or return why that is not possible.

    The proof is of the same kind of environment, perhaps from another process.
    """
    if proof.why:
        return proof.why
    try:
        data = by_attributes.take(env, use_protocols=proof.use_protocols)
        return Copy("attributes", proof.detail, data)
    except Exception as error:  # only this environment fails
        return str(error)


def prove(
    way: Literal["attributes", "actions"], env: Any, kind: Any, make: Callable[[], Any], used: Envs
) -> Proof:
    """Prove a way to copy an environment, unless there is a proof for the same kind."""
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
    """Prove attributes with the protocols of layers, then without: protocols may be wrong."""
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

# The number of copies; the steps of both environments after each copy, and after the last copy; and
# the maximum steps of each alone before the next copy.
COPIES, FEW_STEPS, MORE_STEPS, STEPS_APART = 32, 4, 50, 5


def refute(
    take: Callable[[Any, Record], Any],
    put: Callable[[Any, Any], object],
    make: Callable[[], Any],
    used: Envs,
) -> str:
    """Return why a way is not exact, ``""`` if it is.

    Args:
        take: Returns the state of an environment, given the environment and its record.
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
                    return "its factory returns an environment in use instead of a new one"
                known |= parts
                made.append(env)
            return _difference(take, put, *made)
        except (TypeError, pickle.PicklingError) as error:  # the text names the attribute
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
            expected, actual = origin.step(action), copied.step(action)
            if not _same(expected[:4], actual[:4]):
                return f"a copy differed in step {step + 1} after it was made"
            record.actions.append(action)
            if expected[2] or expected[3] or step == MORE_STEPS // 2:
                observation, record = _reset(origin)
                if not _same(observation, copied.reset()[0]):
                    return "a copy started its next episode differently"
        record = _play(origin, space, int(rng.integers(STEPS_APART)), record)
        _play(copied, space, int(rng.integers(STEPS_APART)), Record(record.start, []))
    return ""


def _reset(env: Any, **arguments: Any) -> tuple[Any, Record]:
    """Reset an environment; return its observation, and the record of its episode."""
    record = Record(note_start(env, arguments), [])
    return env.reset(**arguments)[0], record


def _play(env: Any, space: Any, steps: int, record: Record) -> Record:
    """Take random steps; return the record of the last episode."""
    for _ in range(steps):
        action = space.sample()
        result = env.step(action)
        record.actions.append(action)
        if result[2] or result[3]:
            _, record = _reset(env)
    return record


def _same(first: Any, second: Any) -> bool:
    """Return whether two results are equal to the last bit."""
    return bool(_plain(first) == _plain(second))


def _plain(value: Any) -> Any:
    """Replace numbers and arrays by their bytes, so that NaN equals itself."""
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [type(value), *map(_plain, value)]
    return pickle.dumps(value)
