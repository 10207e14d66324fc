"""What only some backends can do: optional parts, ``None`` where a backend cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from agym.backends.options import Recycle
from agym.protocol.arguments import Ids
from agym.protocol.messages.operations import Message
from agym.protocol.table import Extension


class InPlace(Protocol):
    """Steps all environments in one call, while nothing else is under way."""

    @property
    def runs_here(self) -> bool:
        """Whether the environments run in the thread that calls."""

    def step(self, number: int, plane: int, parts: list[Any] | None = None) -> bool:
        """Step all environments; ``parts`` are those of the actions that are not in the table.

        It may watch for the end of the step as long as a spin may take.

        Returns:
            Whether the step has ended and the rows are the whole result; otherwise completions
            follow. They follow too if :meth:`settle` is not called.
        """

    def settle(self, number: int) -> None:
        """Drop the completions of a step whose end was watched."""


class Supervision(Protocol):
    """Ends and replaces workers.

    Any worker that ends unexpectedly is reported by a completion with the number ``FAULT`` for its
    range, whose problems include a ``WorkerDeath``. Each of its pending operations then completes
    with that death.
    """

    def end_worker(self, worker: int, reason: str) -> None:
        """End a worker that missed its deadline, and report a ``WorkerDeath``."""

    def replace_worker(self, worker: int, number: int) -> None:
        """Start a replacement for a worker that has ended; its completion has the given number.

        Operations may be submitted at once.
        """

    def running(self, worker: int) -> int | None:
        """Return the environment that a worker is running, if known."""

    def check_workers(self) -> None:
        """Detect workers that have ended without waking the caller."""


class Spares(Protocol):
    """Replaces workers by fresh ones, which take the environments over one by one."""

    @property
    def recycle(self) -> Recycle | None:
        """When to do so, if the caller wants it."""

    def prepare(self, worker: int, number: int) -> None:
        """Start a spare for a worker; its completion has the given number."""

    def discard(self, worker: int) -> None:
        """End a spare that has taken over no environment."""

    def move(self, worker: int, slot: int, *, back: bool = False) -> None:
        """Route later operations of an environment to the spare, or back."""

    def finish(self, worker: int) -> None:
        """Put the spare in the worker's place, once all environments have moved."""


class Groups(Protocol):
    """Environments that are one ``VectorEnv`` each group."""

    @property
    def env_groups(self) -> Sequence[range]:
        """The groups; known once the environments are made."""

    def reason_unsupported(
        self, kind: type[Message], ids: Ids, seeds: Sequence[int | None] | None = None
    ) -> str | None:
        """Return why some environments cannot do something without others of their group.

        The engine asks before it sends anything, ``Restart`` included, except a step of all.
        ``seeds`` are those of a reset.
        """


class Extensions(Protocol):
    """Hosts in other processes that can use planes added to the table later."""

    def extend(self, extension: Extension) -> None:
        """Give the hosts planes that were added to the table, before operations on them."""

    def shrink(self, extension: Extension) -> None:
        """Tell the hosts that planes were removed from the table."""
