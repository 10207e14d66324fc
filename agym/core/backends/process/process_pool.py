"""Process: environments run in worker processes, in contiguous ranges.

All workers map one slot table in shared memory, and each has a mailbox. This module is the caller's
side; ``backends/process/worker_main.py`` is the worker's side.
"""

from __future__ import annotations

import os
import select
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from selectors import EVENT_READ
from typing import Any

from agym.core.backends.options import Process
from agym.core.backends.pool import Pool
from agym.core.backends.port import BackendOptions, Port
from agym.core.backends.process.process_port import EXIT_CODE_SECONDS, ProcessPort, end_processes
from agym.core.backends.process.serialization import pack_by_value
from agym.core.backends.process.worker_process import check_daemon, check_platform
from agym.core.backends.registry import refuse_import, with_registry
from agym.core.backends.spinning import WATCH_SECONDS, SpinPolicy
from agym.core.protocol.messages.completions import Completion
from agym.core.protocol.messages.failures import Failure, describe_exit
from agym.core.protocol.messages.operations import Make, Operation
from agym.core.protocol.table import Extension, SlotTable

# Counts the pools of this process.
_started = count()


class RemotePool(Pool):
    """A pool whose workers receive packed messages, through its ports' ``pack`` and ``post``."""

    def __init__(self, options: BackendOptions, kind: type[Port]) -> None:
        refuse_import()
        super().__init__(options, kind)

    def _options_of(self, worker: int) -> BackendOptions:
        """Return the options of a worker, with this process's registry of environments."""
        ids = self.ranges[worker]
        factories = self.options.some(ids)
        if self.options.spec_as(Process).start_method != "fork":  # a fork has a copy of it
            factories = with_registry(factories)
        return replace(self.options, factories=factories, first=ids.start)

    def _submit(self, operation: Operation) -> None:
        """Pack all parts before sending any: if one can't be pickled, none is sent."""
        messages = [
            (port, part, port.pack(part))
            for port, ids in self._routes
            for part in operation.split(ids, sent_by_env=self._kind.splits)
        ]
        for port, part, message in messages:
            if port.death is None:
                port.record(part)
                port.post(part, message)
            else:
                self._refuse(part, port.death)


class ProcessPool(RemotePool):
    """Divides environments among worker processes, and posts operations to their mailboxes."""

    shared = True

    def __init__(self, options: BackendOptions) -> None:
        check_platform()
        check_daemon()
        super().__init__(options, ProcessPort)
        # The first core of the workers. Different callers, and different pools of a caller, start
        # with different cores, so that they do not all use the same ones.
        self._position = os.getpid() + next(_started) * len(self.ranges)
        # Polls the channels of all workers, and the ends of their processes.
        self._poller = select.poll()
        self.spinning = SpinPolicy(WATCH_SECONDS)
        self._closers.append(partial(end_processes, self._resources))

    # ---------------------------------------------------------------- workers and table

    def _ready(self, worker: int, number: int, message: Make) -> tuple[Any, ...]:
        ids = self.ranges[worker]
        with_options = replace(message, options=self._options_of(worker))
        make = Operation(number, ids.start, ids.stop, with_options)
        return make, pack_by_value(make, self.options.named(ids))

    def _port(self, worker: int) -> ProcessPort:
        port: ProcessPort = super()._port(worker)
        port.position, port.workers = self._position + worker, len(self.ranges)
        return port

    def attach(self, table: SlotTable) -> None:
        super().attach(table)
        arenas = table.arena, *(added.arena for added in table.extensions.values())
        self._closers += (arena.close for arena in arenas)

    def extend(self, extension: Extension) -> None:
        self._closers.append(extension.arena.close)
        for port in self._living():
            port.extend(extension)

    def shrink(self, extension: Extension) -> None:
        self._closers.remove(extension.arena.close)
        for port in self._living():
            port.shrink(extension)

    # ---------------------------------------------------------------- completions

    def crowded_until(self) -> float:
        times: list[float] = [port.crowded_until for port in self._ports]
        return max(super().crowded_until(), *times)

    def finished_at(self) -> float:
        times: list[float] = [port.finished_at for port in self._ports]
        # A signal handler may have closed the environments and dropped all ports.
        return max(times, default=0.0)

    def take_step(self, number: int) -> bool:
        if not self._rings or self._completions:
            return False
        for k, port in enumerate(self._ports):
            if not port.take_step():
                # Steps of the earlier ports are settled already, so report them as completions.
                taken = self.ranges[:k]
                self._completions += [Completion(number, ids.start, ids.stop) for ids in taken]
                return False
        return True

    # ---------------------------------------------------------------- deaths

    def _arrange(self) -> None:
        super()._arrange()
        # The short way for steps requires that every port is alive and has its whole range.
        self._rings = not self._moved and all(port.death is None for port in self._ports)
        self._poller = select.poll()
        for port in self._living():
            for descriptor in port.waitables():
                self._poller.register(descriptor, select.POLLIN)

    def check_workers(self, ready: Collection[int] | None = None) -> None:
        if ready is None:
            ready = [descriptor for descriptor, _ in self._poller.poll(0)]
        for port in self._ports:
            if port.death is None and port.is_gone(ready):
                self._report_death(port)
        for worker, standby in [*self._standbys.items()]:
            if standby.is_gone(ready):
                if worker in self._moved:
                    # Some environments exist only in the standby, so the whole worker is lost.
                    self._ports[worker].kill()
                    self._report_death(self._ports[worker])
                else:
                    self._report_lost_standby(standby)

    def _report_lost_standby(self, standby: ProcessPort) -> None:
        """Report a standby that ended before it took over anything: it could not be made."""
        reason = describe_exit(standby.process.reap(EXIT_CODE_SECONDS))
        self._completions += standby.collect()
        self.discard(standby.worker)
        problem = Failure(standby.ids.start, "make", f"its new worker died, {reason}", "")
        self._completions += standby.fail(problem)

    # ---------------------------------------------------------------- waiting

    def park(self, envs: int = 1) -> None:
        """Prepare for a sleep; only one worker wakes a caller that waits for all environments.

        When woken, the caller checks the other workers. A worker that sends a message wakes the
        caller in any case, by the bytes in its channel.
        """
        self._parked = True
        for port in reversed(self._sources):  # the last worker starts last
            # Set the flag, then look for news: a worker that finishes in between either sees the
            # flag and rings, or its news is seen here and the next worker is asked to ring.
            port.park()
            # The caller's own range has no descriptor, so it cannot wake the caller.
            if envs >= self._num_envs and not port.news() and port.waitables():
                break

    def waitables(self) -> Mapping[int, int]:
        waitables = {**super().waitables()}
        if self._closing:  # include workers that were killed but have not ended yet
            processes = [port.process for port in self._ports if port.pid is not None]
            waitables.update((process.ended, EVENT_READ) for process in processes)
        return waitables
