"""Vector: each worker's environments are one ``gymnasium.vector.VectorEnv``.

It runs in a thread, so that the caller's loop stays free while it steps: code worth batching mostly
releases the GIL. The thread constructs, uses and closes it, unless the caller constructed it.
Otherwise this is the thread backend, which also handles a ``VectorEnv`` that hangs.

The environments of a worker do everything together. An operation on some of them that needs the
others is refused before anything is sent.
"""

from __future__ import annotations

from typing import Any

from agym.core.backends.options import BackendSpec
from agym.core.backends.pool import Pool
from agym.core.backends.port import BackendOptions, RunningHost
from agym.core.backends.serial import SerialPool, SerialPort
from agym.core.backends.thread import ThreadPort
from agym.core.hosts.vector.construction import Traits
from agym.core.hosts.vector.vector_host import VectorHost
from agym.core.protocol.arguments import Ids
from agym.core.protocol.messages.failures import name_range
from agym.core.protocol.messages.operations import (
    Call,
    GetAttr,
    Load,
    Message,
    Render,
    Reset,
    Save,
    Step,
)

# Allowed on some environments: the host runs it for all, and returns the results of some.
ALLOWED_FOR_SOME = (Render, Call, GetAttr, Save, Load)


class VectorPort(ThreadPort):
    """Runs one ``VectorEnv`` in a thread."""

    # A worker's part of a sent step is one step, even if its completions are received separately.
    splits = False

    host: VectorHost

    @classmethod
    def count(cls, spec: BackendSpec) -> int:
        return spec.workers or 1

    def _make_host(self) -> RunningHost:
        options = self.options
        return VectorHost(
            options.some(self.ids), self.ids.start, options.autoreset, catch=BaseException,
            guard=self.guard, infos=options.infos, vector_infos=options.vector_infos,
        )  # fmt: skip


class VectorEnvPool(Pool):
    """A pool whose ports run one ``VectorEnv`` each."""

    _traits: Traits

    def reason_unsupported(self, message: Message, ids: Ids) -> str | None:
        if isinstance(message, ALLOWED_FOR_SOME):
            return None
        seeds = message.seeds if isinstance(message, Reset) else None
        seed_of = dict.fromkeys(ids) if seeds is None else dict(zip(ids, seeds, strict=True))
        for port in self._ports:
            asked = [seed_of[i] for i in port.ids if i in seed_of]
            whole = len(asked) == len(port.ids)
            reason = None
            if asked and isinstance(message, Reset):
                reason = self._traits_of(port).unsupported_reset(whole, asked)
            elif asked and not whole and not self._steps_some(port, message):
                reason = "are one VectorEnv: include all of them"
            if reason is not None:
                return (
                    f"{message.name}: {name_range(port.ids)} {reason}, or use"
                    " backend='serial' or 'process', which steps each environment separately"
                )
        return None

    def _steps_some(self, port: Any, message: Message) -> bool:
        return isinstance(message, Step) and self._traits_of(port).steps_some

    def _traits_of(self, port: Any) -> Traits:
        # A replacement may not have made its environments yet; they are like its predecessor's.
        self._traits = getattr(port.host, "traits", None) or self._traits
        return self._traits


class VectorPool(VectorEnvPool):
    """Runs one ``VectorEnv`` per thread."""

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options, VectorPort)
        self.env_groups = self.ranges


class TwinPort(SerialPort):
    """Runs one ``VectorEnv`` in the caller's thread, because waking a thread takes longer."""

    host: VectorHost

    def _make_host(self) -> VectorHost:
        options = self.options
        self.host = VectorHost(
            options.some(self.ids), self.ids.start, options.autoreset, infos=options.infos,
            vector_infos=options.vector_infos,
        )  # fmt: skip
        return self.host


class TwinPool(VectorEnvPool, SerialPool):
    """One port."""

    kind = TwinPort

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        self.env_groups = self.ranges
