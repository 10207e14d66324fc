"""Other programs on the same cores: busy loops, and a learner that computes half of the time.

They are not children of this process, so they count as other programs in CPU measurements.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from agym.core._system.cpus import available_cores
from agym.core._system.extras import installed

# A program ends by itself after some hours, in case this process is killed. It prints its id from a
# forked child, which is not a child of this process.
HEAD = (
    "import os, signal\nif os.fork(): os._exit(0)\nsignal.alarm(4 * 3600)\n"
    "def begin(): print(os.getpid(), flush=True)\n"
)

BUSY_LOOP = HEAD + "begin()\nwhile True: pass\n"

# Matrix products on all cores for half of the time, like a training loop that waits for batches. A
# tenth of a second is about the time of PPO's network for a few hundred steps.
LEARNER = (
    HEAD
    + """
import time
import torch
torch.set_num_threads({cores})
matrix = torch.rand(512, 512)
torch.mm(matrix, matrix)
begin()
while True:
    end = time.perf_counter() + 0.1
    while time.perf_counter() < end:
        torch.mm(matrix, matrix)
    time.sleep(0.1)
"""
)


@dataclass(frozen=True)
class Neighbours:
    """Programs that run during a measurement.

    Attributes:
        name: Their name in tables.
        code: The program.
        count: Number of instances.
        module: The package that the program needs.
    """

    name: str
    code: str = BUSY_LOOP
    count: int = 1
    module: str | None = None

    @property
    def installed(self) -> bool:
        return self.module is None or installed(self.module)

    @contextmanager
    def running(self) -> Iterator[list[int]]:
        """Run them; yield their process ids."""
        with ExitStack() as stack:
            yield [stack.enter_context(_running(self.code)) for _ in range(self.count)]


QUIET = Neighbours("nothing", count=0)
ONE_LOOP = Neighbours("one busy loop")
TWO_LOOPS = Neighbours("two busy loops", count=2)
TORCH_LEARNER = Neighbours("a learner", LEARNER.format(cores=available_cores()), module="torch")


@contextmanager
def _running(code: str) -> Iterator[int]:
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        started.wait()  # until then it is a grandchild of this process
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGKILL)
