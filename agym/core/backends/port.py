"""A port: the caller's end of one worker, from its start to its end.

A backend is a class of ports and a class of options (``agym.backends.BackendSpec``). Its pool
(``backends/pool.py``) starts a port for each range of environments, routes operations to ports, and
replaces the port of a worker that has ended.

A port passes operations to a host, such as :class:`~agym.core.hosts.sync_host.SyncHost`, and
reports what the host completed. It guarantees that:

- no method blocks (except ``post`` of ports that run environments in the caller's thread);
- each environment runs its operations in the order of ``post``;
- each operation gets one completion, or several that cover its range, whatever happens;
- one thread constructs, uses and closes an environment.

Most ports report from other threads, through the pool's outbox (:meth:`Port.report`). A port with
shared memory, or with its own descriptors, is ``polled`` instead.

Test a backend with ``agym.testing.BackendConformance``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import Any, ClassVar, Protocol, TypeVar

from gymnasium.vector import AutoresetMode

from agym.core.backends.options import BackendSpec
from agym.core.backends.outbox import Outbox
from agym.core.hosts.base import ALL_INFOS, Host, RunningSlot
from agym.core.hosts.factories import Factory
from agym.core.hosts.rate_limit import RateLimiter
from agym.core.protocol.arguments import runs
from agym.core.protocol.infos.policy import InfoPolicy
from agym.core.protocol.messages.completions import Completion, Description, Payload
from agym.core.protocol.messages.failures import Failure, WorkerDeath, describe_exception
from agym.core.protocol.messages.operations import CLOSE, OPEN, Make, Operation, Span
from agym.core.protocol.table import SlotTable

# Everything that a third-party backend needs, apart from a host such as ``SyncHost``.
__all__ = [
    "BackendOptions",
    "Completion",
    "Force",
    "Operation",
    "Port",
    "SlotTable",
    "close_host",
    "open_host",
]

Spec = TypeVar("Spec", bound=BackendSpec)
AnyHost = TypeVar("AnyHost", bound=Host)


@dataclass(frozen=True)
class BackendOptions:
    """The environments of a backend, and how to run them.

    Attributes:
        factories: One factory per environment.
        autoreset: What follows the end of an episode.
        spec: The options that only this backend has, as the caller passed them.
        blocking: The caller's thread runs no event loop while it waits.
        track_running: Record the running environment, so that hangs and crashes can be attributed.
        record_actions: Report how each episode starts, so that it can be replayed.
        infos: The infos that hosts report.
        vector_infos: The caller accepts infos in vector form.
        first: Id of the first environment, if these are only some of the environments.
        limiter: Limits the rate of calls, if ``rate_limit`` is given.
    """

    factories: Sequence[Factory]
    autoreset: AutoresetMode
    spec: BackendSpec = field(default_factory=BackendSpec)
    blocking: bool = True
    track_running: bool = False
    record_actions: bool = False
    infos: InfoPolicy = ALL_INFOS
    vector_infos: bool = False
    first: int = 0
    limiter: RateLimiter | None = None

    def spec_as(self, kind: type[Spec]) -> Spec:
        """Return the options, or the backend's defaults if the caller passed another class."""
        return self.spec if isinstance(self.spec, kind) else kind(workers=self.spec.workers)

    def ranges(self, workers: int) -> list[range]:
        """Divide the environments among workers: contiguous ranges of nearly equal size."""
        n = len(self.factories)
        workers = min(workers, n)
        bounds = [self.first + n * k // workers for k in range(workers + 1)]
        return [range(start, stop) for start, stop in pairwise(bounds)]

    def some(self, ids: range) -> Sequence[Factory]:
        """Return the factories of a range of environments."""
        return self.factories[ids.start - self.first : ids.stop - self.first]

    def named(self, ids: range) -> Iterator[tuple[str, Factory]]:
        """Yield the same factories, each with a name for error messages."""
        named = zip(ids, self.some(ids), strict=True)
        return ((f"the factory of environment {i}", factory) for i, factory in named)

    def host(
        self,
        kind: Callable[..., AnyHost],
        ids: range,
        *,
        marker: RunningSlot | None = None,
        **arguments: Any,
    ) -> AnyHost:
        """Return a host of a range of environments, such as a ``SyncHost``.

        Args:
            kind: The class of the host, which calls each environment separately.
            ids: The environments.
            marker: Where to record the running environment, if it is tracked.
            arguments: The host's other arguments.
        """
        return kind(
            self.some(ids), ids.start, self.autoreset, log=self.record_actions,
            marker=marker if self.track_running else None, infos=self.infos, limiter=self.limiter,
            **arguments,
        )  # fmt: skip


class Force(IntEnum):
    """How forcefully to end workers."""

    NONE = 0
    TERMINATE = 1
    KILL = 2


class Port(ABC):
    """The caller's end of one worker. A backend implements the abstract methods.

    Attributes:
        worker: The worker's index.
        ids: Its environments.
        options: The options of the backend.
        outbox: The queue that :meth:`report` fills.
        pid: The worker's process; ``None`` for a worker in this process.
        exitcode: The exit code of the process, if known.
        closed: The completion of ``close`` has arrived, or the worker was given up.
        death: Why the worker is gone; ``None`` while it is in use.
        marker: ``marker[0]`` is the id of the running environment plus one, 0 if unknown.
        over: Completions that arrive from now on are dropped.
        watched: The caller may be sleeping on its descriptors.
    """

    # Whether :meth:`collect` returns the completions, instead of the outbox.
    polled: ClassVar[bool] = False
    # Whether another port can replace a port whose worker died.
    replaceable: ClassVar[bool] = False
    # Whether steps that were sent are posted by environment, so that each completes separately.
    splits: ClassVar[bool] = True
    # What runs the environments, for error messages.
    runner: ClassVar[str] = "it"
    # Whether completions can arrive while the caller's event loop does not turn.
    watchable: ClassVar[bool] = True

    pid: int | None = None
    exitcode: int | None = None
    closed = False
    death: WorkerDeath | None = None
    over = False
    watched = True

    def __init__(self, worker: int, ids: range, options: BackendOptions, outbox: Outbox) -> None:
        """Store the arguments; :meth:`start` starts the worker."""
        self.worker = worker
        self.ids = ids
        self.first, self.stop, self.size = ids.start, ids.stop, len(ids)
        self.options = options
        self.outbox = outbox
        self.marker: RunningSlot = [0]
        # The name of each posted and uncompleted operation, and the environments that completed
        # before the others of their operation. An operation is known by its number and its range,
        # because a part of it may be sent again while the rest is under way: the ranges overlap.
        self.pending: dict[Span, str] = {}
        self._early: dict[Span, set[int]] = {}
        # The name of the last operation on all environments, and of later ones on some.
        self._last_name = Make.name
        self._last_names: dict[int, str] = {}

    # ---------------------------------------------------------------- what a backend implements

    @abstractmethod
    def start(self, make: Operation) -> None:
        """Start the worker, which makes the environments; the completion has ``make``'s number."""

    @abstractmethod
    def attach(self, table: SlotTable) -> None:
        """Give the host the table whose rows it fills, before any operation."""

    @abstractmethod
    def post(self, operation: Operation) -> None:
        """Start an operation."""

    @abstractmethod
    def close(self, force: Force = Force.NONE) -> None:
        """End the worker; the completion has the number ``CLOSE``.

        Args:
            force: ``NONE`` asks it to finish its queue and close its environments. If it has not
                ended after some seconds, ``TERMINATE`` follows, and then ``KILL``.
        """

    def report(self, item: Completion | BaseException) -> None:
        """Report a completion, or the error that ended the worker. Any thread may call this."""
        self.outbox.put(self, item)

    # ---------------------------------------------------------------- what a backend may override

    @classmethod
    def count(cls, spec: BackendSpec) -> int:
        """Return the maximum number of workers."""
        return spec.workers or 1

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to wait for after ``close``."""
        return self.closed or self.death is not None

    @property
    def local_pid(self) -> int | None:
        """The worker's process, if it runs on this machine."""
        return os.getpid() if self.pid is None else self.pid

    @property
    def running(self) -> int | None:
        """The environment that the worker is running, if known."""
        mark = self.marker[0]  # read once: the worker may change it between two reads
        return mark - 1 if mark else None

    def kill(self) -> None:
        """End or abandon the worker; from then on its environments must not write rows."""

    def end(self, error: BaseException | None, late: str, *, closing: bool) -> str:
        """End the rest of the worker, and return why it died.

        Args:
            error: The error that ended it, if it was reported.
            late: Why it is ended by force; empty if it is not.
            closing: The caller is closing and needs no details.
        """
        self.kill()
        return late if error is None else self.explain(error)

    def explain(self, error: BaseException) -> str:
        """Describe the exception that ended the worker."""
        return f"{self.runner} raised {describe_exception(error)}"

    def take(self, item: Any) -> Iterator[Completion]:
        """Yield the completions in an item of the outbox that is not a completion; settle them.

        Raises:
            Exception: The error that ended the worker.
        """
        raise NotImplementedError

    def release(self) -> None:
        """End the worker, without waiting: the pool is released or garbage-collected."""

    def join(self) -> None:
        """Wait for a worker that is about to end, after :meth:`release`."""

    def forget(self) -> bool:
        """Release a port that was replaced; return whether it is completely released."""
        return True

    # ---------------------------------------------------------------- what a polled port overrides

    def collect(self) -> Sequence[Completion]:
        """Return the completions that have arrived, and settle them."""
        return ()

    def news(self) -> bool:
        """Check quickly whether there may be completions, for a caller that spins."""
        return False

    def waitables(self) -> Mapping[int, int]:
        """Return the file descriptors to sleep on, with masks of ``selectors`` events."""
        return {}

    def park(self, envs: int = 1) -> None:
        """Prepare for the caller's sleep on the waitables: completions must wake the caller."""

    def unpark(self) -> None:
        """End the caller's sleep."""

    # ---------------------------------------------------------------- what is pending

    def record(self, operation: Operation) -> None:
        """Note that an operation is about to be posted."""
        name = operation.message.name
        self.pending[operation.span] = name
        self.note_name(name, operation.start, operation.stop)

    def note_name(self, name: str, start: int, stop: int) -> None:
        """Note the last operation of some environments."""
        if stop - start == self.size:
            self._last_name = name
            self._last_names.clear()
        else:
            self._last_names.update(dict.fromkeys(range(start, stop), name))

    def settle(self, number: int, low: int, high: int) -> bool:
        """Note that environments have completed an operation; return whether it was pending."""
        if number == CLOSE:
            self.closed = True
        operation = self.find(self.pending, number, low, high)
        if operation is None:
            return False
        if self.complete(operation, low, high):
            del self.pending[operation]
        return True

    def find(self, operations: Collection[Span], number: int, low: int, high: int) -> Span | None:
        """Return the operation of which these environments are an uncompleted part, if any."""
        if (number, low, high) in operations and (number, low, high) not in self._early:
            return number, low, high
        for operation in operations:
            if operation[0] == number and operation[1] <= low < high <= operation[2]:
                early = self._early.get(operation)
                if not early or early.isdisjoint(range(low, high)):
                    return operation
        return None

    def complete(self, operation: Span, low: int, high: int) -> bool:
        """Note a part of an operation that has completed; return whether it was the last."""
        _, start, stop = operation
        if (low, high) == (start, stop):
            return True
        early = self._early.setdefault(operation, set())
        early.update(range(low, high))
        if len(early) < stop - start:
            return False
        del self._early[operation]
        return True

    def unfinished(self) -> list[tuple[int, int, int, str]]:
        """Return the pending operations in the order of ``post``: number, start, stop and name."""
        return [(*operation, name) for operation, name in self.pending.items()]

    def doing(self) -> dict[int, str]:
        """Return each environment's oldest pending operation, or ``idle after`` its last one."""
        doing = {i: f"idle after {self._last_names.get(i, self._last_name)}" for i in self.ids}
        for number, start, stop, name in reversed(self.unfinished()):
            early = self._early.get((number, start, stop), ())
            doing.update((i, name) for i in range(start, stop) if i not in early)
        return doing

    def fail(self, problem: WorkerDeath | Failure) -> list[Completion]:
        """Complete all pending operations with a problem."""
        completions = []
        for number, start, stop, _ in self.unfinished():
            early = self._early.get((number, start, stop), ())
            for span in runs(tuple(i for i in range(start, stop) if i not in early)):
                payload = Payload(problems=[problem])
                completions.append(Completion(number, span.start, span.stop, payload))
        self.pending.clear()
        self._early.clear()
        self.over = True
        return completions


class RunningHost(Protocol):
    """A host that runs operations one after another."""

    @property
    def first(self) -> int: ...
    @property
    def stop(self) -> int: ...
    def make(self) -> tuple[dict[int, Description], list[Failure]]: ...
    def attach(self, table: SlotTable) -> None: ...
    def run(self, operation: Operation) -> Completion: ...
    def close(self) -> list[Failure]: ...


def open_host(host: Host | RunningHost, number: int = OPEN) -> Completion:
    """Construct a host's environments; return their descriptions, or the failures."""
    described, failures = host.make()
    payload = Payload(values={**described}, problems=[*failures])
    return Completion(number, host.first, host.stop, payload)


def close_host(host: RunningHost) -> Completion:
    """Close a host's environments; return the failures."""
    return closed(host, host.close())


def closed(host: Host | RunningHost, failures: Sequence[Failure]) -> Completion:
    """Return the completion of ``close``."""
    return Completion(CLOSE, host.first, host.stop, Payload(problems=[*failures]))
