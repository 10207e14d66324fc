"""``send``, ``recv`` and ``as_completed``: each step is received once."""

from __future__ import annotations

from functools import partial

import pytest

from agym.errors import BusyError, EnvError, NothingSentError
from agym.testing.laws.law import assert_same, law, rows
from agym.testing.worlds import World


@law("single")
def sent_steps_are_received_once(world: World) -> None:
    """In batches of any environments, each row equals the row of a plain step."""
    with world.open(5) as ours, world.open(5) as theirs:
        ours.reset(seed=3)
        theirs.reset(seed=3)
        for k in range(12):
            actions = [(k + i) % 10 for i in range(5)]
            expected = theirs.step(actions)
            ours.send(actions)
            received = []
            for batch in ours.as_completed(min_envs=2, max_envs=3):
                assert len(batch.env_ids) <= 3
                for row, i in enumerate(batch.env_ids):
                    received.append(int(i))
                    assert_same(
                        [column[row] for column in batch[1:]], [column[i] for column in expected]
                    )
            assert sorted(received) == [0, 1, 2, 3, 4]


@law("single")
def a_receipt_without_a_sent_step_is_refused(world: World) -> None:
    """``recv`` raises, and ``as_completed`` returns at once."""
    with world.open(2) as envs:
        envs.reset()
        assert list(envs.as_completed()) == []
        with pytest.raises(NothingSentError):
            envs.recv()
        envs.send([0], [1])
        assert envs.recv().env_ids.tolist() == [1]
        with pytest.raises(NothingSentError):
            envs.recv()


@law("single")
def a_sent_step_excludes_others_until_it_is_received(world: World) -> None:
    """A second step raises even if the first has finished; resets, renders and calls run."""
    with world.open(3, length=9) as envs:
        envs.reset()
        for is_finished in (False, True):
            envs.send([4, 4], [2, 0])
            if is_finished:
                envs.render()
            for dispatch in (
                partial(envs.step, [0, 0, 0]),
                partial(envs.step, [0], env_ids=[2]),
                partial(envs[0].step, 0),
                partial(envs.send, [0, 0], [0, 1]),
            ):
                with pytest.raises(BusyError, match=r"environment [02].*recv"):
                    dispatch()
            envs.reset(env_ids=[0])
            envs.step([0], env_ids=[1])
            batch = envs.recv(min_envs=2)
            assert sorted(batch.env_ids.tolist()) == [0, 2]
            assert {action for *_, action in rows(batch)} == {4}
        assert envs.step([0, 0, 0]).observations[:, 2].tolist() == [1, 3, 3]


@law("concurrent")
def who_waits_keeps_nobody_from_being_received(world: World) -> None:
    """``recv`` returns finished environments; later calls return the others."""
    with world.with_options(workers=3).open(3) as envs:
        envs.reset()
        envs.script.set(1, "step", "wait")
        envs.send([5, 6, 7])
        received: list[list[float]] = []
        while len(received) < 2:
            received += rows(envs.recv())
        assert sorted(received) == [[0, 1, 5], [2, 1, 7]]
        assert len(envs.recv(timeout=0).env_ids) == 0
        envs.send([8], [0])
        assert rows(envs.recv()) == [[0, 2, 8]]
        envs.open_gate(1)
        assert rows(envs.recv()) == [[1, 1, 6]]


@law("single")
def a_failure_is_received_once(world: World) -> None:
    """The other environments' results are received as usual."""
    with world.open(4) as envs:
        envs.reset()
        envs.script.set(2, "step", "raise")
        envs.send([5, 6, 7, 8])
        received: list[list[float]] = []
        errors: list[int] = []
        while len(received) < 3 or not errors:
            try:
                received += rows(envs.recv())
            except EnvError as error:
                errors.append(error.env_id)
        assert sorted(received) == [[0, 1, 5], [1, 1, 6], [3, 1, 8]]
        assert errors == [2]
        with pytest.raises(NothingSentError):
            envs.recv()
