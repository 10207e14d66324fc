"""Plain ``asyncio.sleep`` in worker processes: no runner of coroutines can be faster."""

from __future__ import annotations

import asyncio
import gc
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from benchmarks.measuring.event_loop import new_runner

# A separate process per event loop, which inherits nothing.
CONTEXT = get_context("spawn")


class PlainWaits:
    """Processes in each of which a number of coroutines wait, all at the same time."""

    def __init__(self, processes: int, share: int, delay: float) -> None:
        """Prepare; each process gets ``share`` coroutines that wait ``delay`` seconds."""
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(processes):
            ours, theirs = CONTEXT.Pipe()
            process = CONTEXT.Process(target=_serve, args=(theirs, share, delay), daemon=True)
            self._ends.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        for end in self._ends:
            end.recv()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join()

    def milliseconds(self) -> float:
        """Let all of them wait once; return how long the slowest process took."""
        for end in self._ends:
            end.send(None)
        return 1000 * max(float(end.recv()) for end in self._ends)


def _serve(end: Connection, share: int, delay: float) -> None:
    gc.disable()  # a collection during a round would find nothing
    with new_runner() as runner:
        runner.run(_seconds(share, delay))
        end.send(None)
        while True:
            try:
                end.recv()
            except EOFError:
                return
            end.send(runner.run(_seconds(share, delay)))


async def _seconds(share: int, delay: float) -> float:
    started = time.perf_counter()
    await asyncio.gather(*(asyncio.sleep(delay) for _ in range(share)))
    return time.perf_counter() - started
