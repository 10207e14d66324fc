"""The drill: questions that are given up at random moments, and whether an answer is another's.

And the pace: what a step costs the client. It needs nothing but Python, so that a process which has
only a peer's package runs it too.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Protocol

# The seconds within which an answer comes, or is given up; an echo takes none, or as long.
PATIENCE = 0.02
# The part of the echoes that takes its time, and of the questions that a cancellation may end.
SLOW, CANCELLED = 0.7, 0.5
# A question that is answered by neither an answer nor an error within so many seconds ends the run.
ENDLESS = 60.0


class Session(Protocol):
    """A client of an environment that echoes values."""

    async def reset(self, value: int) -> int:
        """Begin an episode, whose first observation is the value."""
        ...

    async def step(self, value: int, delay: float) -> int:
        """Return the value that the environment says after a delay.

        Raises:
            TimeoutError: The client's own deadline was missed.
        """
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...


@dataclass
class Tally:
    """What became of the questions.

    Attributes:
        answered: Those that got an answer.
        timeouts: Those that the client gave up by its own deadline.
        cancelled: Those that were cancelled.
        shifted: Answers that were another question's.
        errors: Other failures by their kind, each of one question.
    """

    answered: int = 0
    timeouts: int = 0
    cancelled: int = 0
    shifted: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def given_up(self) -> int:
        """Questions whose answers nobody awaited any more."""
        return self.timeouts + self.cancelled


async def drill(make: Callable[[], Session], sessions: int, give_up: int, seed: int) -> Tally:
    """Ask in so many sessions at once, until so many questions were given up."""
    tally, values = Tally(), itertools.count(1)

    async def play(number: int) -> None:
        rng, session, ready = random.Random(f"{seed}.{number}"), make(), False
        try:
            while tally.given_up < give_up:
                value = next(values)
                try:
                    async with asyncio.timeout(ENDLESS):
                        answer = await _ask(session, value, rng, reset=not ready)
                    tally.answered += 1
                    tally.shifted += answer != value
                    ready = True
                except _Cancelled:
                    tally.cancelled += 1
                    ready = False
                except TimeoutError:
                    tally.timeouts += 1
                    ready = False
                except Exception as error:
                    kind = f"{type(error).__name__}: {str(error)[:80]}"
                    tally.errors[kind] = tally.errors.get(kind, 0) + 1
                    ready = False
        finally:
            await session.close()

    await asyncio.gather(*map(play, range(sessions)))
    return tally


async def pace(make: Callable[[], Session], sessions: int, steps: int) -> float:
    """Return the processor's time, in microseconds, that a step costs the client's process."""
    clients = [make() for _ in range(sessions)]

    async def play(client: Session, count: int) -> None:
        for value in range(count):
            answer = await client.step(value, 0.0)
            assert answer == value

    try:
        await asyncio.gather(*(client.reset(0) for client in clients))
        await asyncio.gather(*(play(client, 10) for client in clients))
        begun = time.process_time()
        await asyncio.gather(*(play(client, steps) for client in clients))
        return 1e6 * (time.process_time() - begun) / (sessions * steps)
    finally:
        await asyncio.gather(*(client.close() for client in clients))


class _Cancelled(Exception):
    """A question was cancelled by whoever asked it."""


async def _ask(session: Session, value: int, rng: random.Random, *, reset: bool) -> int:
    if reset:
        return await session.reset(value)
    delay = rng.uniform(0, 2 * PATIENCE) if rng.random() < SLOW else 0.0
    if rng.random() > CANCELLED:
        return await session.step(value, delay)
    deadline = asyncio.timeout(rng.uniform(0, PATIENCE))
    try:
        async with deadline:
            return await session.step(value, delay)
    except TimeoutError:
        if deadline.expired():
            raise _Cancelled from None
        raise


def write_line(value: object) -> None:
    """Write to the process that started this one."""
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


def write_json(value: object) -> None:
    """Write a tally or a number as JSON."""
    write_line(json.dumps(asdict(value) if isinstance(value, Tally) else value))
