"""Serial: every environment in the caller's own thread, one after the other.

The oracle of all tests, the fastest place for a few cheap environments, and the one to debug
in. It does block: ``step`` steps the environments before it returns, also under the async face
and on its event loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from agym.core.host import EnvHost
from agym.core.operations import Operation, Outcome
from agym.core.slots import SlotTable
from agym.executors.base import Executor, Placement, close_host, open_host


class SerialExecutor(Executor):
    """Runs operations at once, in ``submit``."""

    def __init__(self, placement: Placement) -> None:
        """Remember what to make."""
        super().__init__(placement)
        self._host = EnvHost(placement.factories, 0, placement.autoreset)
        self._outcomes: list[Outcome] = []
        self._ended = False

    def start(self) -> None:
        """Make the environments."""
        self._outcomes.append(open_host(self._host))

    def attach(self, table: SlotTable) -> None:
        """Give the host its table."""
        self._host.attach(table)

    def submit(self, operation: Operation) -> None:
        """Run the operation."""
        self._outcomes.append(self._host.run(operation))

    def poll(self) -> Sequence[Outcome]:
        """Give what has been run."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def close(self) -> None:
        """Close the environments."""
        self._outcomes.append(close_host(self._host))
        self._ended = True

    @property
    def ended(self) -> bool:
        """Whether the environments are closed."""
        return self._ended
