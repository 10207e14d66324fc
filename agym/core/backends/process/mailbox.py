"""The layout of a mailbox, which carries operations to a worker and completions back.

Steps without objects go through a ring in shared memory, and nothing is pickled. Every other
operation is a message on the channel, stamped with the ring's tail, so that the worker keeps the
order. A completion without a payload is a count in shared memory; any other is a message::

    caller                               shared words                             worker
    post(step)      -- entry, TAIL ----> [ ring of (number, range, plane) ] ----> run
    post(other)     -- SENT, message --> channel -------------------------------> run
    collect() <------------------------- COMPLETED  (steps without payload) <---- count
    collect() <------------------------- channel, ANSWERED  (everything else) <-- message

The caller's end is in ``backends/process/process_port.py``, the worker's end in ``worker_loop.py``.

Each word is aligned and has one writer, so no update needs a lock, and no read is torn. The ring
cannot overflow: it has an entry per environment, and an environment has at most one step in flight.
"""

from __future__ import annotations

import struct

import numpy as np

from agym.core.protocol.frames import ARENA
from agym.core.protocol.memory import Field

# Shared int64 words: a cache line written by the caller, a cache line written by the worker, and
# the ring. POSTED is the time at which the caller posted its latest step, FINISHED the time at
# which the worker finished a step (not for coroutine environments), CROWDED the time until which
# the worker does not spin: in nanoseconds of ``perf_counter``, which is the same clock for all
# processes of a machine. RUNNING is the environment that is being stepped, plus one.
TAIL, SENT, CALLER_ASLEEP, POSTED = 0, 1, 2, 3
COMPLETED, ANSWERED, WORKER_ASLEEP, RUNNING, FINISHED, CROWDED = 8, 9, 10, 11, 12, 13
RING = 16

# Words of a ring entry: number, start and stop in one word, plane.
ENTRY = 3

# Headers of packed messages. Down: the ring's tail, number, start, stop. Up: number, and the count
# of spans of environments that have completed; the spans follow, each as its first environment
# and one past its last.
DOWN = struct.Struct("<qqqq")
UP = struct.Struct("<qq")


def mailbox_fields(count: int) -> dict[str, Field]:
    """Lay out the shared memory for ``count`` environments, with one step in flight each."""
    return {"words": (np.dtype(np.int64), (RING + ENTRY * count,)), "frames": ARENA}
