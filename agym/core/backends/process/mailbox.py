"""The layout of a mailbox, which carries operations to a worker and completions back.

Steps without objects go through a ring in shared memory, and nothing is pickled. Everything else is
a message on the channel, stamped with the ring's tail, so that the worker keeps the order. A
completion without a payload is a count in shared memory; any other is a message::

    caller                               shared words                             worker
    post(step)      -- entry, TAIL ----> [ ring of (number, range, plane) ] ----> run
    post(other)     -- SENT, message --> channel -------------------------------> run
    collect() <------------------------- COMPLETED  (steps without payload) <---- count
    collect() <------------------------- channel, ANSWERED  (everything else) <-- message

The caller's end is in ``backends/process/process_port.py``, the worker's in ``worker_loop.py``.
"""

from __future__ import annotations

import struct

import numpy as np

from agym.core.protocol.frames import ARENA
from agym.core.protocol.memory import Field

# Shared int64 words: a cache line written by the caller, one written by the worker, the ring.
# POSTED is when the caller posted its latest step, FINISHED when the worker finished one (not for
# coroutine environments), CROWDED until when the worker does not spin: in nanoseconds of
# ``perf_counter``, which is one clock for all processes of a machine. RUNNING is the environment
# that is stepped, plus one.
TAIL, SENT, CALLER_ASLEEP, POSTED = 0, 1, 2, 3
COMPLETED, ANSWERED, WORKER_ASLEEP, RUNNING, FINISHED, CROWDED = 8, 9, 10, 11, 12, 13
RING = 16

# Words of a ring entry: number, start and stop in one word, plane.
ENTRY = 3

# Headers of packed messages. Down: the ring's tail, number, start, stop. Up: number, and how many
# spans of environments have completed; these follow, each after its operation's start.
DOWN = struct.Struct("<qqqq")
UP = struct.Struct("<qq")

# An operation's start, then the first and one past the last of its completed environments.
SlotRange = tuple[int, int, int]


def mailbox_fields(count: int) -> dict[str, Field]:
    """Lay out the shared memory for ``count`` environments, with one step in flight each."""
    return {"words": (np.dtype(np.int64), (RING + ENTRY * count,)), "frames": ARENA}
