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
from agym.hosts.snapshots.replaying import Record, note_start

# How many copies are made; the steps of both together after each, and after the last; and at most
# how many each takes alone before.
COPIES, FEW_STEPS, MORE_STEPS, STEPS_APART = 32, 4, 50, 5


def refute(
    take: Callable[[Any, Record], Any],
    put: Callable[[Any, Any], Any],
    make: Callable[[], Any],
    used: Sequence[Any],
) -> str:
    """Return why a way is not exact, ``""`` if it is.

    Args:
        take: Returns the state of an environment, of which it also gets the record.
        put: Sets the state of an environment, and returns it, or another in its place.
        make: Makes an environment.
        used: Environments in use, which must not be touched.
    """
    made: list[Any] = []
    mine = {id(layer) for env in used for layer in layers(env)}
    with undisturbed():
        try:
            for _ in range(2):
                env = make()
                if mine.intersection(map(id, layers(env))):
                    return "its factory returns an environment that is in use, and makes no other"
                mine.update(map(id, layers(env)))
                made.append(env)
            return _difference(take, put, made)
        except (TypeError, pickle.PicklingError) as error:  # says what cannot be pickled
            return str(error)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            for env in made:
                with suppress(Exception):
                    env.close()


def _difference(
    take: Callable[[Any, Record], Any], put: Callable[[Any, Any], Any], made: list[Any]
) -> str:
    rng, space = np.random.default_rng(0), copy.deepcopy(made[0].action_space)
    space.seed(0)
    record = _play(made[0], space, 23, None, seed=1)
    for copies in range(1, COPIES + 1):
        state = pickle.loads(pickle.dumps(take(made[0], record)))
        made[1] = put(made[1], state)
        for step in range(FEW_STEPS if copies < COPIES else MORE_STEPS):
            action = space.sample()
            one, other = made[0].step(action), made[1].step(action)
            if not _same(one[:4], other[:4]):
                return f"a copy went another way in step {step + 1} after it was made"
            record.actions.append(action)
            if one[2] or one[3] or step == MORE_STEPS // 2:
                record = Record(note_start(made[0], {}), [])
                if not _same(made[0].reset()[0], made[1].reset()[0]):
                    return "a copy began its next episode otherwise"
        record = _play(made[0], space, int(rng.integers(STEPS_APART)), record)
        _play(made[1], space, int(rng.integers(STEPS_APART)), None)
    return ""


def _play(
    env: Any, space: Any, steps: int, record: Record | None, *, seed: int | None = None
) -> Record:
    """Play so many random steps; return the record of the last episode."""
    if seed is not None or record is None:
        record = Record(note_start(env, {"seed": seed}), [])
    if seed is not None:
        env.reset(seed=seed)
    for _ in range(steps):
        action = space.sample()
        result = env.step(action)
        record.actions.append(action)
        if result[2] or result[3]:
            record = Record(note_start(env, {}), [])
            env.reset()
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
