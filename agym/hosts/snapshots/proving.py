"""The proof that a way to copy environments is exact, with two environments made for it.

One is played to some point of an episode and copied to the other, which was never reset. Then both
take the same actions, and must do the same, bit for bit: after each of many copies for a few steps,
since what a copy lacks may matter only now and then; and after the last for longer, through resets
without a seed.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from agym._system.isolation import undisturbed
from agym.hosts.snapshots.attributes import layers
from agym.hosts.snapshots.replaying import note_start
from agym.hosts.snapshots.states import Record

# How many copies are made; the steps of both together after each, and after the last; and at most
# how many each takes alone before.
COPIES, FEW_STEPS, MORE_STEPS, STEPS_APART = 32, 4, 50, 5


def refute(
    take: Callable[[Any, Record], Any],
    put: Callable[[Any, Any], object],
    make: Callable[[], Any],
    used: Sequence[Any],
) -> str:
    """Return why a way is not exact, ``""`` if it is.

    Args:
        take: Returns the state of an environment, of which it also gets the record.
        put: Sets the state of an environment.
        make: Makes an environment.
        used: Environments in use, which must not be touched.
    """
    made: list[Any] = []
    known = {id(layer) for env in used for layer in layers(env)}
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
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [type(value), *map(_plain, value)]
    if value is None or isinstance(value, str | bytes | int):
        return value
    return pickle.dumps(value)
