"""What only some backends can do: optional parts, ``None`` where a backend cannot."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol

from agym.backends.options import Recycle
from agym.backends.spinning import SpinPolicy
from agym.protocol.arguments import Ids
from agym.protocol.messages.operations import Message, Spare
from agym.protocol.table import Extension
from agym.protocol.typing import Array, Info


class Workers:
    """What runs environments beside the caller's thread, which it wakes.

    As it stands there is nothing beside it: each operation has ended when it was submitted.
    """

    # Whether completions can arrive while the caller's thread spins.
    watchable = True

    @cached_property
    def spinning(self) -> SpinPolicy:
        """Decides whether a caller that waits spins."""
        return SpinPolicy()

    @property
    def pids(self) -> Sequence[int | None]:
        """Process id of each worker, ``None`` if it has ended."""
        return [os.getpid()]

    def news(self) -> bool:
        """Check quickly whether completions may have arrived, for a caller that spins."""
        return True

    def waitables(self) -> Mapping[int, int]:
        """Return the file descriptors to sleep on, with masks of ``selectors`` events."""
        return {}

    def on_ring(self, callback: Callable[[], None]) -> None:
        """Call ``callback``, in any thread, when a descriptor becomes readable.

        An event loop that watches no descriptors asks for this. Without it, that loop looks for
        completions once per second.
        """

    def park(self, envs: int = 1) -> None:
        """Prepare for the caller's sleep on the waitables: completions must wake it.

        Args:
            envs: How many environments the caller waits for; a problem must wake it earlier.
        """

    def unpark(self) -> None:
        """End the caller's sleep."""

    @property
    def finalized(self) -> bool:
        """Whether the finalizer has run, perhaps before the owner's ``__del__``."""
        return False

    def abandon(self) -> bool:
        """Drop the workers in a forked child, without taking locks or sending messages.

        Returns:
            Whether the backend is of no use in the child.
        """
        return False


NO_WORKERS = Workers()


class Inline(Protocol):
    """Steps all environments in the caller's thread, in one call."""

    def step_inline(
        self, number: int, plane: int, parts: list[Any] | Array | None
    ) -> list[Info] | Literal[False]:
        """Step all environments; ``parts`` are those of the actions that are not in the table.

        An array has all actions; environments may keep its rows.

        Returns:
            The infos, which the caller may keep, if these and the rows are the whole result;
            otherwise a completion follows.
        """


class Watched(Protocol):
    """Steps all environments, and watches for the end as long as a spin may take."""

    def step_watched(self, number: int, plane: int, parts: list[Any] | None) -> bool:
        """Step all environments; ``parts`` are those of the actions that are not in the table.

        Returns:
            Whether the step has ended and the rows are the whole result; otherwise completions
            follow. They follow too if :meth:`settle_watched` is not called.
        """

    def settle_watched(self, number: int) -> None:
        """Drop the completions of a step whose end was watched."""


class Supervision(ABC):
    """Ends and replaces workers.

    Any worker that ends unexpectedly is reported by a completion with the number ``FAULT`` for its
    range, whose problems include a ``WorkerDeath``. Each of its pending operations then completes
    with that death.
    """

    @abstractmethod
    def end_worker(self, worker: int, reason: str) -> None:
        """End a worker that missed its deadline, and report a ``WorkerDeath``."""

    @abstractmethod
    def replace_worker(self, worker: int, number: int) -> None:
        """Start a replacement for a worker that has ended; its completion has the given number.

        Operations may be submitted at once.
        """

    def running(self, worker: int) -> int | None:
        """Return the environment that a worker is running, if known."""
        return None

    def check_workers(self) -> None:
        """Detect workers that have ended without waking the caller, if there can be any."""


class Spares(Protocol):
    """Replaces workers by fresh ones, which take the environments over one by one."""

    @property
    def recycle(self) -> Recycle | None:
        """When to do so, if the caller wants it."""

    def prepare(self, worker: int, number: int, spare: Spare) -> None:
        """Start a spare for a worker by a message; its completion has the given number.

        Its values are the proofs of how to copy each environment.
        """

    def discard(self, worker: int) -> None:
        """End a spare that has taken over no environment."""

    def move(self, worker: int, slot: int, *, back: bool = False) -> None:
        """Route later operations of an environment to the spare, or back."""

    def finish(self, worker: int) -> bool:
        """Put the spare in the worker's place, once all environments have moved.

        Returns:
            Whether the spare is still there: it ends with its worker.
        """


class Groups(Protocol):
    """Environments that are one ``VectorEnv`` each group."""

    @property
    def env_groups(self) -> Sequence[range]:
        """The groups; known once the environments are made."""

    def reason_unsupported(
        self, message: Message, ids: Ids, seeds: Sequence[int | None] | None = None
    ) -> str | None:
        """Return why some environments cannot do something without others of their group.

        The engine asks before it sends anything, ``Restart`` included, except a step of all.
        ``seeds`` are those of a reset.
        """


class Shared(Protocol):
    """Hosts that map the table's memory in other processes, also planes that are added later."""

    def extend(self, extension: Extension) -> None:
        """Give the hosts planes that were added to the table, before operations on them."""

    def shrink(self, extension: Extension) -> None:
        """Tell the hosts that planes were removed from the table."""
