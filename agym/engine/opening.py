"""What is known and allocated once the environments are made."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from operator import itemgetter

from agym._system.files import os_errors_as_usage_errors
from agym.backends.base import Backend
from agym.engine.batches.builder import BatchBuilder
from agym.engine.batches.debugging import is_debugging
from agym.engine.batches.out_target import Buffers
from agym.errors import SpaceMismatchError, UsageError
from agym.hosts.rows import Rows
from agym.protocol.messages.completions import Description, Payload
from agym.protocol.space_layout import Layout
from agym.protocol.table import SlotTable


class Descriptions:
    """The descriptions of environments, one per run of equal ones."""

    def __init__(self, payload: Payload) -> None:
        """Sort the descriptions from all workers.

        Raises:
            SpaceMismatchError: Environments differ.
        """
        self._by_start: list[tuple[int, Description]] = sorted(payload.values.items())
        for start, other in self._by_start:
            mismatch = self.first.mismatch(other)
            if mismatch is not None:
                raise SpaceMismatchError(f"environment {start} does not fit: {mismatch}")

    @property
    def first(self) -> Description:
        """The description of the first environment."""
        return self._by_start[0][1]

    def of(self, env_id: int) -> Description:
        """Return an environment's description."""
        return self._by_start[bisect(self._by_start, env_id, key=itemgetter(0)) - 1][1]


@dataclass(frozen=True)
class Opened:
    """Open environments.

    Attributes:
        table: The slot table.
        batches: Builds results from it.
        rows: Reads actions from it.
        buffers: The rollout buffers.
    """

    table: SlotTable
    batches: BatchBuilder
    rows: Rows
    buffers: Buffers


@dataclass(frozen=True)
class Opening:
    """How to open environments.

    Attributes:
        num_envs: Number of environments.
        copy: Give batches away, instead of views of a plane.
        final: Final observations have rows of their own.
        leases: Batches may be leased to the caller, because the engine never reads them again.
        recycles: Environments move between workers.
        debug: Poison views that have expired.
    """

    num_envs: int
    copy: bool
    final: bool
    leases: bool
    recycles: bool
    debug: bool

    @classmethod
    def of(
        cls, num_envs: int, autoreset: str, *, copy: bool, plain: bool, recycles: bool
    ) -> Opening:
        """Decide; ``plain`` says that no fault needs a batch after it was returned."""
        leases = copy and plain and autoreset != "disabled"
        return cls(num_envs, copy, autoreset == "same_step", leases, recycles, is_debugging())

    def complete(self, description: Description, backend: Backend) -> Opened:
        """Lay out the table.

        Raises:
            UsageError: Environments cannot move between workers, or there is no memory for them.
        """
        if self.recycles and not description.movable:
            raise UsageError(
                "recycle= moves environments between worker processes, which coroutine environments"
                " cannot do: leave it out"
            )
        with os_errors_as_usage_errors("the environments cannot be made"):
            table = SlotTable(
                Layout(description.observation_space),
                Layout(description.action_space),
                self.num_envs,
                final=self.final,
                leases=self.leases,
                shared=backend.shared is not None,
            )
        batches = BatchBuilder(
            table,
            copy=self.copy,
            vector_infos=backend.options.vector_infos,
            debug=self.debug,
        )
        rows = Rows(table, 0, self.num_envs)
        buffers = Buffers(table, backend, direct=self.leases)
        return Opened(table, batches, rows, buffers)
