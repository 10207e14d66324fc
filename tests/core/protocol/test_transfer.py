"""Rows go from one table to another as they are, whatever the spaces."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from agym.core.backends.ray.reply_buffer import put_rows, take_rows
from agym.core.hosts.sync_host import SyncHost
from agym.core.protocol.messages.operations import Operation, Reset, Step
from agym.core.protocol.space_layout import Layout
from agym.core.protocol.table import FIRST_BUFFER, SlotTable
from agym.testing import any_spaces, assert_same
from agym.testing.random_env import RandomEnv


@given(any_spaces(), st.sets(st.integers(0, 5), min_size=1), st.sampled_from([0, 1, FIRST_BUFFER]))
def test_rows_arrive_as_they_were(space: Space[Any], chosen: set[int], plane: int) -> None:
    ids = sorted(chosen)
    tables = [SlotTable(Layout(space), Layout(spaces.Discrete(3)), 6, final=True) for _ in "12"]
    tables[1].extend(range(FIRST_BUFFER, FIRST_BUFFER + 1))
    theirs, ours = tables
    factories = [partial(RandomEnv, space, spaces.Discrete(3))] * 6
    host = SyncHost(factories, 0, AutoresetMode.SAME_STEP)
    host.make()
    host.attach(theirs)
    host.run(Operation(1, 0, 6, Reset(plane, [*range(6)])))
    size = 0
    for number in range(2, 12):
        outcome = host.run(Operation(number, 0, 6, Step(plane)))
        for schema in () if outcome.payload is None else outcome.payload.schemas.values():
            size = max(size, schema.size)
    put_rows(ours, pickle.loads(pickle.dumps(take_rows(theirs, plane, ids, size))))
    for slot in ids:
        there, here = theirs.planes[plane], ours.planes[plane]
        for one, other in zip(there.observations, here.observations, strict=True):
            assert_same(one[slot], other[slot])
        assert there.rewards[slot] == here.rewards[slot]
        ended = bool(there.terminated[slot] or there.truncated[slot])
        assert ended == bool(here.terminated[slot] or here.truncated[slot])
        if ended:
            for one, other in zip(there.final, here.final, strict=True):
                assert_same(one[slot], other[slot])
        theirs_infos, infos = there.infos, here.infos
        assert theirs_infos.words[slot] == infos.words[slot]
        if infos.words[slot]:
            first, last = slot * infos.stride, slot * infos.stride + size
            assert bytes(theirs_infos.bytes[first:last]) == bytes(infos.bytes[first:last])
