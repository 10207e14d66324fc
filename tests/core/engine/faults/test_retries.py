"""``FaultPolicy(retry=)``: what an episode that is tried again starts from.

That the episodes are those of a run without faults is a law.
"""

from __future__ import annotations

from dataclasses import replace

import agym
from agym.backends import Process
from agym.testing import World, assert_same
from agym.testing.laws import LAWS
from tests.support.worlds import ASYNCIO, PROCESS, SERIAL, over

RESTART = agym.FaultPolicy("restart", retry=2)


@over(SERIAL, PROCESS, ASYNCIO)
def test_a_first_reset_that_raises_is_repeated(world: World) -> None:
    with world.open(4, on_fault=RESTART) as envs, SERIAL.open(4) as others:
        envs.script.set(1, "reset", "raise")
        observations, infos = envs.reset(seed=3)
        assert infos[1]["fault"].retry == infos[1]["retry"] == 1
        assert_same(others.reset(seed=3).observations, observations)


def test_a_reset_with_a_seed_starts_another_episode() -> None:
    with SERIAL.open(2, on_fault=RESTART) as envs:
        envs.reset(seed=3)
        for seed in (8, 9, 10):  # the failures of each episode are counted anew
            envs.script.set(1, "step", "raise")
            assert envs.step([1, 1]).infos[1]["fault"].retry == 1
            info = envs.reset(seed=[seed], env_ids=[1]).infos[1]
            assert info["seed"] == seed
            assert "retry" not in info


def test_a_retry_has_the_options_of_the_episode_or_of_its_reset() -> None:
    with SERIAL.open(2, on_fault=RESTART) as envs:
        envs.reset(seed=3, options={"length": 9})
        for options in (None, {"length": 7}):
            envs.script.set(1, "step", "raise")
            envs.step([1, 1])
            info = envs.reset(env_ids=[1], options=options).infos[1]
            assert info["options"] == (options or {"length": 9})
            assert "retry" in info
        assert info["seed"] == 4


def test_a_restored_episode_is_not_tried_again() -> None:
    with SERIAL.open(2, on_fault=RESTART) as envs:
        envs.reset(seed=3)
        envs.step([1, 1])
        envs.restore(envs.snapshot())
        envs.script.set(1, "step", "raise")
        assert envs.step([1, 1]).infos[1]["fault"].retry == 0


def test_a_replayed_episode_needs_no_retry() -> None:
    """Environment 0 only shared the worker."""
    with PROCESS.open(4, on_fault=agym.FaultPolicy("replay", retry=2)) as envs:
        envs.reset(seed=3)
        envs.step([1] * 4)
        envs.script.set(1, "step", "kill")
        infos = envs.step([1] * 4).infos
        assert infos[1]["fault"].retry == 1
        assert "fault" not in infos[0]
        infos = envs.reset(env_ids=[0, 1]).infos
        assert ["retry" in info for info in infos[:2]] == [False, True]


def test_an_environment_that_shares_a_failing_worker_uses_up_no_retry() -> None:
    with PROCESS.open(4, on_fault=RESTART) as envs:
        envs.reset(seed=3)
        for failures in (1, 2, 3):
            envs.script.set(1, "step", "kill")
            infos = envs.step([1] * 4).infos
            assert infos[0]["fault"].retry == failures
            assert infos[1]["fault"].retry == (failures if failures < 3 else 0)  # given up
            infos = envs.reset(env_ids=[0, 1]).infos
            assert infos[0]["seed"] == 3


def test_recycling_keeps_a_retry() -> None:
    backend = Process(start_method="fork", recycle=agym.Recycle(episodes=1))
    LAWS["a_retry_repeats_the_episode"].check(replace(PROCESS, backend=backend))


def test_without_retries_no_info_mentions_them() -> None:
    with SERIAL.open(2, on_fault="restart") as envs:
        envs.reset(seed=3)
        envs.script.set(1, "step", "raise")
        assert envs.step([1, 1]).infos[1]["fault"].retry == 0
        assert "retry" not in envs.reset(env_ids=[1]).infos[1]
