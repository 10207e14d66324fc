"""The interface of a backend. A new backend is one subclass of :class:`Backend`.

A backend passes operations to one or more hosts, such as :class:`~agym.hosts.gym.EnvHost`, and
returns their completions. It guarantees that:

- ``submit`` and ``poll`` never block (only ``serial`` runs environments inside ``submit``);
- each environment runs its operations in the order of submission;
- each operation gets one completion, or several that cover its range, whatever happens;
- one thread constructs, uses and closes an environment.

Complete sent steps in small parts (``Operation.split``), so that ``recv`` can return each early.

Test a subclass with ``agym.testing.BackendConformance``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, TypeVar

from gymnasium.vector import AutoresetMode

from agym.backends.options import BackendSpec
from agym.backends.parts import Extensions, Groups, InPlace, Spares, Supervision
from agym.backends.spinning import SpinPolicy
from agym.hosts.base import ALL_INFOS, Factory, Host
from agym.hosts.gym import EnvHost
from agym.protocol.infos.policy import InfoPolicy
from agym.protocol.messages.completions import Completion, Description, Payload
from agym.protocol.messages.failures import Failure
from agym.protocol.messages.operations import CLOSE, OPEN, Operation
from agym.protocol.table import SlotTable

# Everything that a third-party backend needs.
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
    """What a backend runs.

    Attributes:
        factories: One per environment.
        autoreset: What follows the end of an episode.
        spec: The backend's own options, as the caller passed them.
        blocking: The caller's thread runs no event loop while it waits.
        track_running: Record the running environment, so that hangs and crashes can be attributed.
        record_actions: Report how each episode begins, so that it can be replayed.
        infos: Which infos hosts report.
        first: Id of the first environment, if these are a part of all.
    """

    factories: Sequence[Factory]
    autoreset: AutoresetMode
    spec: BackendSpec = field(default_factory=BackendSpec)
    blocking: bool = True
    track_running: bool = False
    record_actions: bool = False
    infos: InfoPolicy = ALL_INFOS
    first: int = 0

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


class Backend(ABC):
    """Runs environments; the module's docstring lists the guarantees.

    Attributes:
        options: What it runs.
        spinning: Decides whether a caller that waits spins.
        ranges: The environments of each worker.
    """

    # Whether the slot table is shared memory: hosts run, or may later run, in other processes.
    shared: bool = False

    # Whether completions can arrive while the caller's thread spins.
    watchable = True

    def __init__(self, options: BackendOptions) -> None:
        """Store the options; :meth:`start` constructs the environments."""
        self.options = options
        self.spinning = SpinPolicy()
        self.ranges = options.ranges(1)

    @property
    def pids(self) -> Sequence[int | None]:
        """Process id of each worker, ``None`` if it has ended."""
        return [os.getpid()] * len(self.ranges)

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

    def news(self) -> bool:
        """Check quickly whether completions may have arrived, for a caller that spins."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Ask the hosts to finish their queues, to close their environments, and to end."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether every host has ended."""

    @property
    def finalized(self) -> bool:
        """Whether the finalizer has run, perhaps before the owner's ``__del__``."""
        return False

    # ---------------------------------------------------------------- optional parts

    @property
    def in_place(self) -> InPlace | None:
        """What steps all environments in one call."""
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
    def extensions(self) -> Extensions | None:
        """What adds planes to the tables of hosts in other processes."""
        return None

    # ---------------------------------------------------------------- closing

    def terminate(self) -> None:
        """End workers that did not end when asked."""

    def kill(self) -> None:
        """End workers that did not terminate."""

    def waitables(self) -> Mapping[int, int]:
        """Return the file descriptors to sleep on, with masks of ``selectors`` events."""
        return {}

    def park(self) -> None:
        """Prepare for the caller's sleep on the waitables: completions must wake it."""

    def unpark(self) -> None:
        """End the caller's sleep."""

    def abandon(self) -> bool:
        """Drop the workers in a forked child, without taking locks or sending messages.

        Returns:
            Whether the backend is of no use in the child.
        """
        return False

    def release(self) -> None:
        """Release what is left, once the hosts have ended."""


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
