"""The interface of a backend. A new backend is one subclass of :class:`Backend`.

A backend passes operations to one or more hosts, such as :class:`~agym.hosts.sync.SyncHost`, and
returns their completions. It guarantees that:

- ``submit`` and ``poll`` never block (only ``serial`` runs environments inside ``submit``);
- each environment runs its operations in the order of submission;
- each operation gets one completion, or several that cover its range, whatever happens;
- one thread constructs, uses and closes an environment.

Complete sent steps in small parts (``Operation.split``), so that ``recv`` can return each early.

Test a subclass with ``agym.testing.BackendConformance``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import Protocol, TypeVar

from gymnasium.vector import AutoresetMode

from agym.backends.options import BackendSpec
from agym.backends.parts import (
    NO_WORKERS,
    Groups,
    Inline,
    Shared,
    Spares,
    Supervision,
    Watched,
    Workers,
)
from agym.hosts.base import ALL_INFOS, Host
from agym.hosts.factories import Factory
from agym.hosts.fleet.setup import FleetSetup
from agym.protocol.infos.policy import InfoPolicy
from agym.protocol.messages.completions import Completion, Description, Payload
from agym.protocol.messages.failures import Failure
from agym.protocol.messages.operations import CLOSE, OPEN, Operation
from agym.protocol.table import SlotTable

# Everything that a third-party backend needs, beside a host such as ``SyncHost``.
__all__ = [
    "Backend",
    "BackendOptions",
    "Completion",
    "Force",
    "Operation",
    "SlotTable",
    "Workers",
    "close_host",
    "open_host",
]


Spec = TypeVar("Spec", bound=BackendSpec)


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
        fleet: The fleet's options that are on; ``None`` if none is.
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
    fleet: FleetSetup | None = None

    def spec_as(self, kind: type[Spec]) -> Spec:
        """Return the options; the backend's defaults, if the caller passed its class."""
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


class Force(IntEnum):
    """How hard to end workers."""

    NONE = 0
    TERMINATE = 1
    KILL = 2


class Backend(ABC):
    """Runs environments; the module's docstring lists the guarantees.

    What only some backends can do are parts (``backends/parts.py``).

    Attributes:
        options: What it runs.
        ranges: The environments of each worker.
    """

    def __init__(self, options: BackendOptions) -> None:
        """Store the options; :meth:`start` constructs the environments."""
        self.options = options
        self.ranges = options.ranges(1)

    @abstractmethod
    def start(self) -> None:
        """Start constructing the environments; each host's completion has the number ``OPEN``."""

    @abstractmethod
    def attach(self, table: SlotTable) -> None:
        """Give the hosts the table whose rows they fill, before any operation."""

    @abstractmethod
    def submit(self, operation: Operation) -> None:
        """Start an operation."""

    @abstractmethod
    def poll(self) -> Sequence[Completion]:
        """Return the completions that have arrived since the last call."""

    @abstractmethod
    def close(self, force: Force = Force.NONE) -> None:
        """End the hosts.

        Args:
            force: ``NONE`` asks them to finish their queues and to close their environments. If
                they have not ended after some seconds, ``TERMINATE`` follows, and then ``KILL``.
        """

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether every host has ended."""

    @abstractmethod
    def release(self) -> None:
        """Release what is left, once the hosts have ended. Idempotent."""

    @property
    def workers(self) -> Workers:
        """What runs beside the caller's thread."""
        return NO_WORKERS

    # ---------------------------------------------------------------- optional parts

    @property
    def inline(self) -> Inline | None:
        """What steps all environments in the caller's thread."""
        return None

    @property
    def watched(self) -> Watched | None:
        """What steps all environments and watches for the end."""
        return None

    @property
    def supervision(self) -> Supervision | None:
        """What ends and replaces workers."""
        return None

    @property
    def spares(self) -> Spares | None:
        """What recycles workers."""
        return None

    @property
    def groups(self) -> Groups | None:
        """What knows the environments that are one ``VectorEnv``."""
        return None

    @property
    def shared(self) -> Shared | None:
        """What needs the table in shared memory."""
        return None


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
