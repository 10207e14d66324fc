"""Native: environments that are one program, a ``gymnasium.vector.VectorEnv`` per worker.

The program runs on a thread, so that the caller's loop stays free while it steps: what is worth
batching mostly releases the GIL. It is made, used and closed there, unless the caller made it.
Otherwise this is the thread backend, which also says what becomes of a program that hangs.

The environments of a worker do everything together, or step so many at a time if the program has a
``batch_size`` (EnvPool; ``hosts/vector/envpool.py``); what cannot be, is refused before it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agym.backends.base import BackendOptions, RunningHost
from agym.backends.outbox import Outbox
from agym.backends.thread import ThreadBackend, ThreadWorker, WorkerReply, WriteGuard
from agym.hosts.vector.envpool import PoolHost
from agym.hosts.vector.making import Traits
from agym.protocol.arguments import Ids
from agym.protocol.messages import NAMES, ROW_KINDS, Completion, Operation, name_range

# What can be asked about some environments of a program: it is done for all, and some are told.
ASKED_OF_SOME = frozenset({"render", "call", "get_attr"})


class NativeWorker(ThreadWorker):
    """A thread with a program, whose environments may end an operation one after the other."""

    def _run(self, host: RunningHost, operation: Operation, outbox: Outbox[WorkerReply]) -> None:
        assert isinstance(host, PoolHost)
        host.serve(operation, lambda said: outbox.put((self, said)))

    def settle(self, outcome: Completion) -> None:
        """An operation has ended, or a part of it."""
        number, start, stop, _ = outcome
        for k, owed in enumerate(self.owed):
            if owed.number == number and owed.start <= start < owed.stop:
                del self.owed[k]
                left = [(owed.start, start), (stop, owed.stop)]
                for low, high in reversed([span for span in left if span[0] < span[1]]):
                    self.owed.insert(k, owed.part(low, high))
                return


class NativeBackend(ThreadBackend):
    """Runs one vector environment per thread."""

    worker_type = NativeWorker

    def __init__(self, options: BackendOptions) -> None:
        """Remember what to make: one program, unless more workers are asked for."""
        super().__init__(options)
        self.ranges = options.ranges(options.spec.workers or 1)
        self._traits: Traits | None = None

    @property
    def vector_programs(self) -> Sequence[range]:
        """Each worker's environments."""
        return self.ranges

    @property
    def env_groups(self) -> Sequence[range]:
        """The same, but for those that come as they are done."""
        pools = [self._traits_of(worker).batch_size for worker in self._workers]
        return [
            ids
            for worker, pool in zip(self._workers, pools, strict=True)
            for ids in ([range(i, i + 1) for i in worker.ids] if pool else [worker.ids])
        ]

    def _traits_of(self, worker: ThreadWorker) -> Traits:
        # One that was just put in another's place need not be made yet.
        self._traits = getattr(worker.host, "traits", self._traits)
        assert self._traits is not None
        return self._traits

    def reason_unsupported(
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
            traits = self._traits_of(worker)
            if mine and kind == "reset":
                why = traits.unsupported_reset(whole, mine)
            if mine and why is None and kind in ROW_KINDS and traits.batch_size:
                why = traits.unsupported_batch(len(mine))
            elif mine and not whole and kind != "reset":
                why = "are one program: name all of them"
            if why is not None:
                return (
                    f"{NAMES.get(kind, kind)}: {name_range(worker.ids)} {why}, or take"
                    " backend='process', where each is by itself"
                )
        return None

    def _make_host(self, ids: range, permit: WriteGuard, marker: list[int]) -> RunningHost:
        options = self.options
        factories = options.factories[ids.start : ids.stop]
        return PoolHost(
            factories, ids.start, options.autoreset, catch=BaseException, guard=permit,
            infos=options.infos,
        )  # fmt: skip

    def _split(self, operation: Operation, ids: range) -> Iterator[Operation]:
        """All environments of a program at once, also where they are received one by one."""
        return operation.shares(ids)
