"""Native: environments that are one program, a ``gymnasium.vector.VectorEnv`` per worker.

The program runs on a thread, so that the caller's loop stays free while it steps: what is worth
batching mostly releases the GIL. It is made, used and closed there, unless the caller made it.
Otherwise this is the thread executor, which also says what becomes of a program that hangs.

The environments of a worker do everything together; what cannot be, is refused before it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agym.core.arguments import Ids
from agym.core.native_host import NativeHost
from agym.core.operations import Operation, name_range
from agym.core.vector_making import Traits
from agym.executors.base import Placement, RunningHost
from agym.executors.thread import Permit, ThreadExecutor

# What can be asked about some environments of a program: it is done for all, and some are told.
ASKED_OF_SOME = frozenset({"render", "call", "get_attr"})

NAMES = {"retire": "close"}


class NativeExecutor(ThreadExecutor):
    """Runs one vector environment per thread."""

    def __init__(self, placement: Placement) -> None:
        """Remember what to make: one program, unless more workers are asked for."""
        super().__init__(placement)
        self.ranges = placement.ranges(placement.workers or 1)
        self._traits: Traits | None = None

    @property
    def programs(self) -> Sequence[range]:
        """Each worker's environments."""
        return self.ranges

    def objection(
        self, kind: str, ids: Ids, seeds: Sequence[int | None] | None = None
    ) -> str | None:
        """Say what a program cannot do for some of its environments, or with such seeds."""
        if kind in ASKED_OF_SOME:
            return None
        wanted = dict.fromkeys(ids) if seeds is None else dict(zip(ids, seeds, strict=True))
        for worker in self._workers:
            mine = [wanted[i] for i in worker.ids if i in wanted]
            whole = len(mine) == len(worker.ids)
            why = None
            if mine and kind == "reset":
                # One that was just put in another's place need not be made yet.
                self._traits = getattr(worker.host, "traits", self._traits)
                why = self._traits and self._traits.reset_objection(whole, mine)
            elif mine and not whole:
                why = "are one program: name all of them"
            if why is not None:
                return (
                    f"{NAMES.get(kind, kind)}: {name_range(worker.ids)} {why}, or take"
                    " backend='process', where each is by itself"
                )
        return None

    def _make_host(self, ids: range, permit: Permit, marker: list[int]) -> RunningHost:
        placement = self.placement
        factories = placement.factories[ids.start : ids.stop]
        return NativeHost(
            factories, ids.start, placement.autoreset, catch=BaseException, guard=permit
        )

    def _pieces(self, operation: Operation, ids: range) -> Iterator[Operation]:
        """All environments of a program at once, also where they are received one by one."""
        return operation.shares(ids)
