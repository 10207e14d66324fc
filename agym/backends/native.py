"""Native: each worker's environments are one ``gymnasium.vector.VectorEnv``.

It runs on a thread, so that the caller's loop stays free while it steps: code worth batching mostly
releases the GIL. The thread constructs, uses and closes it, unless the caller constructed it.
Otherwise this is the thread backend, which also handles a ``VectorEnv`` that hangs.

The environments of a worker do everything together. What some of them cannot do without the others
is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from agym.backends.base import BackendOptions, RunningHost
from agym.backends.parts import Groups
from agym.backends.thread import ThreadBackend, ThreadWorker, WriteGuard
from agym.hosts.vector.construction import Traits
from agym.hosts.vector.host import VectorHost
from agym.protocol.arguments import Ids
from agym.protocol.messages.failures import name_range
from agym.protocol.messages.operations import (
    Call,
    GetAttr,
    Load,
    Message,
    Operation,
    Render,
    Reset,
    Save,
)

# Allowed on some environments: it is done for all, and the results of some are returned.
ASKED_OF_SOME = (Render, Call, GetAttr, Save, Load)


class NativeBackend(ThreadBackend):
    """Runs one ``VectorEnv`` per thread."""

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        self.ranges = options.ranges(options.spec.workers or 1)
        self._traits: Traits | None = None

    @property
    def groups(self) -> Groups:
        return self

    @property
    def env_groups(self) -> Sequence[range]:
        """Each worker's environments."""
        return self.ranges

    def reason_unsupported(
        self, message: Message, ids: Ids, seeds: Sequence[int | None] | None = None
    ) -> str | None:
        if isinstance(message, ASKED_OF_SOME):
            return None
        seed_of = dict.fromkeys(ids) if seeds is None else dict(zip(ids, seeds, strict=True))
        for worker in self._workers:
            asked = [seed_of[i] for i in worker.ids if i in seed_of]
            whole = len(asked) == len(worker.ids)
            reason = None
            if asked and isinstance(message, Reset):
                reason = self._traits_of(worker).unsupported_reset(whole, asked)
            elif asked and not whole:
                reason = "are one VectorEnv: name all of them"
            if reason is not None:
                return (
                    f"{message.name}: {name_range(worker.ids)} {reason}, or use"
                    " backend='serial' or 'process', which step each environment separately"
                )
        return None

    def _traits_of(self, worker: ThreadWorker) -> Traits:
        assert isinstance(worker.host, VectorHost)
        # A replacement may not have made its environments yet.
        self._traits = worker.host.found or self._traits
        assert self._traits is not None
        return self._traits

    def _make_host(self, ids: range, guard: WriteGuard, marker: list[int]) -> RunningHost:
        options = self.options
        factories = options.factories[ids.start : ids.stop]
        return VectorHost(
            factories, ids.start, options.autoreset, catch=BaseException, guard=guard,
            infos=options.infos, vector_infos=options.vector_infos,
        )  # fmt: skip

    def _split(self, operation: Operation, ids: range) -> list[Operation]:
        """Return a worker's part whole, also if its completions are received one by one."""
        return operation.slice(ids)
