"""Laws: functions of a world, with the properties that a world needs for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from agym.testing.worlds import Need, World


@dataclass(frozen=True)
class Law:
    """A promise and its check.

    Attributes:
        name: The promise in a few words.
        check: Raises if a world breaks the law.
        needs: The properties that a world needs, so that the law applies.
    """

    name: str
    check: Callable[[World], None]
    needs: frozenset[str]

    def applies(self, world: World) -> bool:
        """Whether the law applies to this world."""
        return self.needs <= world.has


LAWS: dict[str, Law] = {}


def law(*needs: Need) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    """Register a function as a law; its name and docstring are the promise."""

    def register(check: Callable[[World], None]) -> Callable[[World], None]:
        name = check.__name__
        assert name not in LAWS, f"two laws are named {name}"
        LAWS[name] = Law(name, check, frozenset(needs))
        return check

    return register


def assert_same(ours: Any, theirs: Any) -> None:
    """Assert that two results are equal to the last bit: values, dtypes, nesting."""
    assert type(ours) is type(theirs) or (isinstance(ours, list) and isinstance(theirs, list))
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            assert_same(value, theirs[key])
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs or (ours != ours and theirs != theirs)


def play(envs: Any, steps: int = 10, seed: int | None = 3) -> list[Any]:
    """Reset, step, and return all results; the actions depend on the step and the environment."""
    count = envs.num_envs
    results = [envs.reset(seed=seed)]
    results += [envs.step([(k + i) % 10 for i in range(count)]) for k in range(steps)]
    return results


def rows(batch: Any) -> list[list[float]]:
    """Return the environment, the step and the action of each row of a received batch."""
    columns = batch.observations[:, 2:].tolist()
    return [[i, *row] for i, row in zip(batch.env_ids.tolist(), columns, strict=True)]


def steps_of(envs: Any) -> Sequence[int]:
    """Return the number of steps of each environment's episode."""
    return [int(frame.split(":")[1]) for frame in envs.render()]


async def result_of(awaitable: Any) -> Any:
    """Await something; as a coroutine, it can be a task."""
    return await awaitable


async def await_for(awaitable: Any, turns: int) -> Any:
    """Await something for some turns of the event loop; return ``None`` if that was too short."""
    task = asyncio.ensure_future(result_of(awaitable))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await task
    return None


def calls_of(envs: Any) -> list[Callable[[], Any]]:
    """Return each call of two environments, and of a handle; a step must have been sent."""
    ones: list[Callable[[], Any]] = [envs[0].reset, envs[0].render, partial(envs[0].step, 0)]
    return [
        envs.reset, envs.render, envs.restart, envs.recv, *ones, partial(envs.step, [0, 0]),
        partial(envs.send, [0, 0]), partial(envs.call, "add", 1), partial(envs.get_attr, "value"),
        partial(envs.set_attr, "value", 1),
    ]  # fmt: skip
