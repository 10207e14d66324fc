"""A port: the caller's end of one worker, from its start to its end.

A backend is a class of ports and a class of options (``agym.backends.BackendSpec``). Its pool
(``backends/pool.py``) starts a port for each range of environments, routes operations to ports, and
replaces a port whose worker ended by another one for the same range.

A port passes operations to a host, such as :class:`~agym.core.hosts.sync_host.SyncHost`, and
reports what the host completed. It guarantees that:

- no method blocks (only those that run environments in the caller's thread do so in ``post``);
- each environment runs its operations in the order of ``post``;
- each operation gets one completion, or several that cover its range, whatever happens;
- one thread constructs, uses and closes an environment.

Most ports report from other threads, through the pool's outbox (:meth:`Port.report`). A port with
shared memory, or with descriptors of its own, is ``polled`` instead.

Test a backend with ``agym.testing.BackendConformance``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from agym.core.protocol.messages.operations import CLOSE, OPEN, Make, Operation
from agym.core.protocol.table import SlotTable

# Everything that a third-party backend needs, beside a host such as ``SyncHost``.
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
    """What a backend runs.

    Attributes:
        factories: One per environment.
        autoreset: What follows the end of an episode.
        spec: The backend's own options, as the caller passed them.
        blocking: The caller's thread runs no event loop while it waits.
        track_running: Record the running environment, so that hangs and crashes can be attributed.
        record_actions: Report how each episode begins, so that it can be replayed.
        infos: Which infos hosts report.
        vector_infos: The caller takes infos in vector form.
        first: Id of the first environment, if these are a part of all.
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
        """Return the options; the backend's defaults, if the caller passed none of its class."""
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
        """Yield the same, each with its name for error messages."""
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
            marker: Where to record the running environment, if that is wanted.
            arguments: The host's other arguments.
        """
        return kind(
            self.some(ids), ids.start, self.autoreset, log=self.record_actions,
            marker=marker if self.track_running else None, infos=self.infos, limiter=self.limiter,
            **arguments,
        )  # fmt: skip


class Force(IntEnum):
    """How hard to end workers."""

    NONE = 0
    TERMINATE = 1
    KILL = 2


class Port(ABC):
    """The caller's end of one worker. A backend implements the abstract methods.

    Attributes:
        worker: The worker's index.
        ids: Its environments.
        options: What the backend runs.
        outbox: What :meth:`report` fills.
        pid: The worker's process; ``None`` if it is this one.
        exitcode: The exit code of the process, if known.
        closed: The completion of ``close`` has arrived, or the worker was given up.
        death: Why the worker is gone; ``None`` while it is in use.
        over: Completions that arrive from now on are dropped.
        watched: The caller may be sleeping on its descriptors.
    """

    # Whether :meth:`collect` returns the completions, instead of the outbox.
    polled: ClassVar[bool] = False
    # Whether another port can take the place of one whose worker died.
    replaceable: ClassVar[bool] = False
    # Whether steps that were sent are posted by environment, so that each completes by itself.
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
        self.size = len(ids)
        self.options = options
        self.outbox = outbox
        # Posted and not completed, by number and start: stop and name; and the environments that
        # completed before the others of their operation.
        self.pending: dict[tuple[int, int], tuple[int, str]] = {}
        self._early: dict[tuple[int, int], set[int]] = {}
        # The name of the last operation on all environments, and on those with a later one.
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
            force: ``NONE`` asks it to finish its queue and to close its environments. If it has not
                ended after some seconds, ``TERMINATE`` follows, and then ``KILL``.
        """

    def report(self, item: Completion | BaseException) -> None:
        """Report a completion, or what ended the worker. Any thread may call this."""
        self.outbox.put(self, item)

    # ---------------------------------------------------------------- what a backend may override

    @classmethod
    def count(cls, spec: BackendSpec) -> int:
        """Return how many workers to start at most."""
        return spec.workers or 1

    @property
    def ended(self) -> bool:
        """Whether nothing is left to wait for after ``close``."""
        return self.closed or self.death is not None

    @property
    def local_pid(self) -> int | None:
        """The worker's process, if it runs on this machine."""
        return os.getpid() if self.pid is None else self.pid

    @property
    def running(self) -> int | None:
        """The environment that the worker is running, if known."""
        return None

    def kill(self) -> None:
        """End the worker by force, or give it up: its environments must write no more rows."""

    def end(self, error: BaseException | None, late: str, *, closing: bool) -> str:
        """End what is left of the worker, and return why it died.

        Args:
            error: What ended it, if it was reported.
            late: Why it is ended by force, if it is.
            closing: Nobody is interested in details any more.
        """
        self.kill()
        return late if error is None else self.explain(error)

    def explain(self, error: BaseException) -> str:
        """Return why the worker ended by an exception."""
        return f"{self.runner} raised {describe_exception(error)}"

    def take(self, item: Any) -> Iterator[Completion]:
        """Yield the completions in an item of the outbox that is not one itself; settle them.

        Raises:
            Exception: What ended the worker.
        """
        raise NotImplementedError

    def release(self) -> None:
        """End the worker, without waiting: the pool is released, or nobody refers to it."""

    def join(self) -> None:
        """Wait for a worker that is about to end, after :meth:`release`."""

    def forget(self) -> bool:
        """Release what is left of a port that was replaced; return whether nothing is left."""
        return True

    # ---------------------------------------------------------------- what a polled port overrides

    def collect(self) -> Sequence[Completion]:
        """Return the completions that have arrived; they are settled."""
        return ()

    def news(self) -> bool:
        """Check quickly whether there may be something to collect, for a caller that spins."""
        return False

    def waitables(self) -> Mapping[int, int]:
        """Return the file descriptors to sleep on, with masks of ``selectors`` events."""
        return {}

    def park(self, envs: int = 1) -> None:
        """Prepare for the caller's sleep on the waitables: completions must wake it."""

    def unpark(self) -> None:
        """End the caller's sleep."""

    # ---------------------------------------------------------------- what is pending

    def record(self, operation: Operation) -> None:
        """Note that an operation is about to be posted."""
        number, start, stop, message = operation
        self.pending[number, start] = stop, message.name
        self.note_name(message.name, start, stop)

    def note_name(self, name: str, start: int, stop: int) -> None:
        """Note the last operation of some environments."""
        if stop - start == self.size:
            self._last_name = name
            self._last_names.clear()
        else:
            self._last_names.update(dict.fromkeys(range(start, stop), name))

    def settle(self, number: int, low: int, high: int) -> None:
        """Note that environments have completed an operation."""
        pending = self.pending
        if number == CLOSE:
            self.closed = True
        for key, (stop, _) in pending.items():
            if key[0] == number and key[1] <= low and high <= stop:
                if self.complete_early(key, stop, low, high):
                    del pending[key]
                break

    def complete_early(self, key: tuple[int, int], stop: int, low: int, high: int) -> bool:
        """Note a part of an operation that has completed; return whether it was the last."""
        early = self._early.setdefault(key, set())
        early.update(range(low, high))
        if len(early) < stop - key[1]:
            return False
        del self._early[key]
        return True

    def unfinished(self) -> list[tuple[int, int, int, str]]:
        """Return what is pending in the order of ``post``: number, start, stop and name."""
        return [(*key, *rest) for key, rest in self.pending.items()]

    def doing(self) -> dict[int, str]:
        """Return what each environment does: its oldest pending operation, or ``idle after``."""
        doing = {i: f"idle after {self._last_names.get(i, self._last_name)}" for i in self.ids}
        for number, start, stop, name in reversed(self.unfinished()):
            early = self._early.get((number, start), ())
            doing.update((i, name) for i in range(start, stop) if i not in early)
        return doing

    def fail(self, problem: WorkerDeath | Failure) -> list[Completion]:
        """Complete everything that is pending with a problem."""
        completions = []
        for number, start, stop, _ in self.unfinished():
            early = self._early.get((number, start), ())
            for span in runs(tuple(i for i in range(start, stop) if i not in early)):
                payload = Payload(problems=[problem])
                completions.append(Completion(number, span.start, span.stop, payload))
        self.pending.clear()
        self._early.clear()
        self.over = True
        return completions


class RunningHost(Protocol):
    """A host that runs operations one after the other."""

    @property
    def first(self) -> int: ...
    @property
    def stop(self) -> int: ...
    def make(self) -> tuple[dict[int, Description], list[Failure]]: ...
    def attach(self, table: SlotTable) -> None: ...
    def run(self, operation: Operation) -> Completion: ...
    def close(self) -> list[Failure]: ...


def open_host(host: Host | RunningHost, number: int = OPEN) -> Completion:
    """Construct a host's environments; return their descriptions, or what went wrong."""
    described, failures = host.make()
    payload = Payload(values={**described}, problems=[*failures])
    return Completion(number, host.first, host.stop, payload)


def close_host(host: RunningHost) -> Completion:
    """Close a host's environments; return what they raised."""
    return closed(host, host.close())


def closed(host: Host | RunningHost, failures: Sequence[Failure]) -> Completion:
    """Return the completion of ``close``."""
    return Completion(CLOSE, host.first, host.stop, Payload(problems=[*failures]))
