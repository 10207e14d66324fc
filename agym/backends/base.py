"""Backend: where environments live. A new backend is one subclass of this.

An backend passes operations on to one :class:`~agym.hosts.gym.EnvHost` or several, and the
outcomes back. What it promises:

- ``submit`` and ``poll`` never block (only ``serial`` works inside ``submit``, and says so);
- each environment runs its operations in the order in which they were submitted;
- one outcome, or several that cover its range, comes for each operation, whatever happens;
- an environment is made, used and closed by one thread.

What a caller sent to be received one by one comes the sooner the smaller its outcomes are:
``Operation.pieces`` cuts it up.

Hold a subclass against ``agym.testing.BackendConformance``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, TypeVar

from gymnasium.vector import AutoresetMode

from agym.backends.options import BackendSpec, Recycle
from agym.hosts.base import TELL_ALL, Factory, Host
from agym.hosts.gym import EnvHost
from agym.protocol.arguments import Ids
from agym.protocol.infos.policy import InfoPolicy
from agym.protocol.messages import CLOSE, OPEN, Completion, Description, Failure, Operation, Payload
from agym.protocol.table import Extension, SlotTable

# All that a third party's backend needs.
__all__ = [
    "Backend",
    "BackendOptions",
    "Completion",
    "EnvHost",
    "Operation",
    "SlotTable",
    "close_host",
    "open_host",
]


Spec = TypeVar("Spec", bound=BackendSpec)


@dataclass(frozen=True)
class BackendOptions:
    """What a backend is to run.

    Attributes:
        factories: One per environment.
        autoreset: What follows an episode's end.
        spec: The backend's own options, as the caller gave them.
        blocking: The caller's thread runs no event loop while it waits.
        track_running: Keep track of the environment that runs, so that a hang or a crash can be
            attributed.
        record_actions: Report how each episode begins, so that it can be replayed.
        infos: Which infos hosts report.
        first: Id of the first environment, where these are some of all.
    """

    factories: Sequence[Factory]
    autoreset: AutoresetMode
    spec: BackendSpec = field(default_factory=BackendSpec)
    blocking: bool = True
    track_running: bool = False
    record_actions: bool = False
    infos: InfoPolicy = TELL_ALL
    first: int = 0

    def spec_as(self, kind: type[Spec]) -> Spec:
        """The backend's own options; its defaults, where the caller named the backend's class."""
        return self.spec if isinstance(self.spec, kind) else kind(workers=self.spec.workers)

    def ranges(self, workers: int) -> list[range]:
        """Deal the environments to workers in contiguous ranges, as evenly as can be."""
        n = len(self.factories)
        workers = min(workers, n)
        bounds = [self.first + n * k // workers for k in range(workers + 1)]
        return [range(start, stop) for start, stop in pairwise(bounds)]

    def some(self, ids: range) -> Sequence[Factory]:
        """The factories of some neighbours."""
        return self.factories[ids.start - self.first : ids.stop - self.first]

    def named(self, ids: range) -> Iterator[tuple[str, Factory]]:
        """The same, with a name for each in a message."""
        named = zip(ids, self.some(ids), strict=True)
        return ((f"the factory of environment {i}", factory) for i, factory in named)


class Backend(ABC):
    """One place for environments to live; the module's text says what is promised."""

    # Whether hosts live in other processes, or may come to: the slot table is shared then.
    shared: bool = False

    # Whether outcomes can come while the caller's thread watches for them.
    watchable = True

    def __init__(self, options: BackendOptions) -> None:
        """Remember what to make; :meth:`start` makes it.

        Attributes:
            placement: What to make.
            ranges: The environments of each worker, where there are several.
        """
        self.options = options
        self.ranges = options.ranges(1)

    @property
    def name(self) -> str:
        """What the backend is called."""
        return type(self).__name__.removesuffix("Backend").lower()

    @property
    def pids(self) -> Sequence[int | None]:
        """The process of each worker, ``None`` if it is gone."""
        return [os.getpid()] * len(self.ranges)

    @property
    def factories(self) -> Sequence[Factory]:
        """What makes each environment."""
        return self.options.factories

    @abstractmethod
    def start(self) -> None:
        """Begin to make the environments; each host's outcome has the number ``OPEN``."""

    @abstractmethod
    def attach(self, table: SlotTable) -> None:
        """Give the hosts the table whose rows they fill, before any operation."""

    @property
    def extensible(self) -> bool:
        """Whether hosts can be given planes that are added to the table, as those that have it."""
        return not self.shared

    def extend(self, extension: Extension) -> None:
        """Give the hosts planes that were added to the table, before any operation on these."""

    def shrink(self, extension: Extension) -> None:
        """Tell the hosts that planes were taken off the table."""

    @abstractmethod
    def submit(self, operation: Operation) -> None:
        """Begin an operation."""

    # Whether a step of all environments can be done at once, by :meth:`step`.
    immediate: bool = False

    def step(self, number: int, plane: int, each: list[Any] | None = None) -> bool:
        """Step all environments before this returns.

        Args:
            number: As of an operation.
            plane: Likewise.
            each: Likewise: the actions, or parts of them, that are not in the table.

        Returns:
            Whether there is nothing to tell but their rows; else an outcome comes, as ever.
        """
        raise NotImplementedError

    @abstractmethod
    def poll(self) -> Sequence[Completion]:
        """Give the outcomes that have come since the last call."""

    def news(self) -> bool:
        """Look quickly whether outcomes may have come, for a caller that watches for them."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Ask the hosts to close their environments and to end; they finish their queues first."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether every host has ended."""

    @property
    def forgotten(self) -> bool:
        """Whether everything was given back by itself, since the collector came first.

        It ends what is in a cycle before it calls the ``__del__`` that would have closed it.
        """
        return False

    @property
    def vector_programs(self) -> Sequence[range]:
        """Environments that are one program, and so fail together; mostly there are none."""
        return ()

    @property
    def env_groups(self) -> Sequence[range]:
        """Environments that are stepped together, once they are made."""
        return self.vector_programs

    def reason_unsupported(
        self, kind: str, ids: Ids, seeds: Sequence[int | None] | None = None
    ) -> str | None:
        """Say why some environments cannot do something without others of their program.

        It is asked before anything is sent, of all but steps of all environments.

        Args:
            kind: The kind of operation, ``"restart"`` among them.
            ids: The environments.
            seeds: The seed of each in a reset.
        """
        return None

    # Whether a worker can be ended by force, and another put in its place.
    replaceable: bool = False

    def end_worker(self, worker: int, reason: str) -> None:
        """End a worker by force that misses a deadline; it is told as its death.

        Each worker that ends before it should is told by an outcome with the number ``FAULT`` for
        its range and a ``WorkerDeath`` among the problems; one with that death for each operation
        that it owes comes behind.
        """
        raise NotImplementedError

    def replace_worker(self, worker: int, number: int) -> None:
        """Begin to make another in the place of a worker that has ended.

        The outcome has the number given; operations may be submitted at once.
        """
        raise NotImplementedError

    def running(self, worker: int) -> int | None:
        """The environment of a worker that runs at this moment, if that can be told."""
        return None

    # When workers are replaced by fresh ones, for backends that can do that.
    recycle: Recycle | None = None

    def prepare(self, worker: int, number: int) -> None:
        """Start a spare for a worker; the outcome has the number given."""
        raise NotImplementedError

    def discard(self, worker: int) -> None:
        """End a spare that took nothing over."""
        raise NotImplementedError

    def move(self, worker: int, slot: int, *, back: bool = False) -> None:
        """What is submitted for an environment from now on goes to the spare, or back."""
        raise NotImplementedError

    def finish(self, worker: int) -> None:
        """All environments of a worker have moved: the spare takes its place."""
        raise NotImplementedError

    def terminate(self) -> None:
        """End what did not end when asked."""

    def kill(self) -> None:
        """End what did not terminate."""

    def waitables(self) -> Mapping[int, int]:
        """Tell what to sleep on: file descriptors, each with its mask of ``selectors`` events."""
        return {}

    def park(self) -> None:
        """The caller is about to sleep on the waitables: from now on outcomes must wake it."""

    def unpark(self) -> None:
        """The caller is awake again."""

    def check_workers(self) -> None:
        """See which workers are gone, though nobody was woken by that."""

    def abandon(self) -> bool:
        """Let go of the workers, in a forked child; tell whether nothing here works without them.

        No lock may be taken, and nobody told.
        """
        return False

    def release(self) -> None:
        """Give back what is left, once the hosts have ended."""


class RunningHost(Protocol):
    """What runs the operations of some environments, one after the other."""

    @property
    def first(self) -> int: ...
    @property
    def stop(self) -> int: ...
    def make(self) -> tuple[dict[int, Description], list[Failure]]: ...
    def attach(self, table: SlotTable) -> None: ...
    def run(self, operation: Operation) -> Completion: ...
    def close(self) -> list[Failure]: ...


def open_host(host: Host | RunningHost, number: int = OPEN) -> Completion:
    """Make a host's environments; the outcome tells what they are like or what went wrong."""
    described, failures = host.make()
    extras = Payload(values={**described}, problems=[*failures])
    return Completion(number, host.first, host.stop, extras)


def close_host(host: RunningHost) -> Completion:
    """Close a host's environments; the outcome tells what they raised."""
    return closed(host, host.close())


def closed(host: Host | RunningHost, failures: Sequence[Failure]) -> Completion:
    """Tell that a host's environments are closed, and what they raised."""
    return Completion(CLOSE, host.first, host.stop, Payload(problems=[*failures]))
