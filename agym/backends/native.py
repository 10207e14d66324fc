"""Native: each worker's environments are one ``gymnasium.vector.VectorEnv``.

It runs on a thread, so that the caller's loop stays free while it steps: code worth batching mostly
releases the GIL. The thread constructs, uses and closes it, unless the caller constructed it.
Otherwise this is the thread backend, which also handles a ``VectorEnv`` that hangs.

The environments of a worker do everything together, or step so many at a time if the ``VectorEnv``
has a ``batch_size`` (EnvPool; ``hosts/vector/envpool.py``). What it cannot do is refused before
anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from agym.backends.base import BackendOptions, RunningHost
from agym.backends.outbox import Outbox
from agym.backends.parts import Groups
from agym.backends.thread import ThreadBackend, ThreadWorker, WorkerReply, WriteGuard
from agym.hosts.vector.construction import Traits
from agym.hosts.vector.envpool import PoolHost
from agym.protocol.arguments import Ids
from agym.protocol.messages.completions import Completion
from agym.protocol.messages.failures import name_range
from agym.protocol.messages.operations import (
    Call,
    GetAttr,
    Message,
    Operation,
    Render,
    Reset,
    Restore,
    TakeSnapshot,
)

# Allowed on some environments: it is done for all, and the results of some are returned.
ASKED_OF_SOME = (Render, Call, GetAttr, TakeSnapshot, Restore)


class NativeWorker(ThreadWorker):
    """A thread with a ``VectorEnv``, whose environments may complete one after the other."""

    def _run(self, host: RunningHost, operation: Operation, outbox: Outbox[WorkerReply]) -> None:
        assert isinstance(host, PoolHost)
        host.serve(operation, lambda completed: outbox.put((self, completed)))

    def settle(self, completion: Completion) -> None:
        """Remove a completed operation, or a part of one, from ``pending``."""
        number, start, stop, _ = completion
        for k, operation in enumerate(self.pending):
            if operation.number == number and operation.start <= start < operation.stop:
                del self.pending[k]
                left = [(operation.start, start), (stop, operation.stop)]
                for low, high in reversed([span for span in left if span[0] < span[1]]):
                    self.pending.insert(k, operation.part(low, high))
                return


class NativeBackend(ThreadBackend):
    """Runs one ``VectorEnv`` per thread."""

    worker_type = NativeWorker

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        self.ranges = options.ranges(options.spec.workers or 1)
        self._traits: Traits | None = None

    @property
    def groups(self) -> Groups:
        return self

    @property
    def env_groups(self) -> Sequence[range]:
        """Each worker's environments, or single ones if they complete as they are done."""
        pools = [self._traits_of(worker).batch_size for worker in self._workers]
        return [
            ids
            for worker, pool in zip(self._workers, pools, strict=True)
            for ids in ([range(i, i + 1) for i in worker.ids] if pool else [worker.ids])
        ]

    def _traits_of(self, worker: ThreadWorker) -> Traits:
        assert isinstance(worker.host, PoolHost)
        # A replacement may not have made its environments yet.
        self._traits = worker.host.found or self._traits
        assert self._traits is not None
        return self._traits

    def reason_unsupported(
        self, kind: type[Message], ids: Ids, seeds: Sequence[int | None] | None = None
    ) -> str | None:
        if issubclass(kind, ASKED_OF_SOME):
            return None
        wanted = dict.fromkeys(ids) if seeds is None else dict(zip(ids, seeds, strict=True))
        for worker in self._workers:
            mine = [wanted[i] for i in worker.ids if i in wanted]
            whole = len(mine) == len(worker.ids)
            why = None
            traits = self._traits_of(worker)
            if mine and kind is Reset:
                why = traits.unsupported_reset(whole, mine)
            if mine and why is None and kind.writes_rows and traits.batch_size:
                why = traits.unsupported_batch(len(mine))
            elif mine and not whole and kind is not Reset:
                why = "are one VectorEnv: name all of them"
            if why is not None:
                return (
                    f"{kind.name}: {name_range(worker.ids)} {why}, or use"
                    " backend='serial' or 'process', which step each environment separately"
                )
        return None

    def _make_host(self, ids: range, guard: WriteGuard, marker: list[int]) -> RunningHost:
        options = self.options
        factories = options.factories[ids.start : ids.stop]
        return PoolHost(
            factories, ids.start, options.autoreset, catch=BaseException, guard=guard,
            infos=options.infos, vector_infos=options.vector_infos,
        )  # fmt: skip

    def _split(self, operation: Operation, ids: range) -> list[Operation]:
        """Return a worker's part whole, also if its completions are received one by one."""
        return operation.slice(ids)
