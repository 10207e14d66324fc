"""``on_fault=``: environments that fail are replaced, and all others go on unchanged."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agym import FaultPolicy
from agym.errors import AgymError, CrashLoopError, ResetNeededError
from agym.testing.law import assert_same, law, play, steps_of
from agym.testing.laws.receiving import receive_all
from agym.testing.worlds import World

AT = 4  # the step in which the fault happens


def _fault(world: World) -> str:
    return "kill" if "processes" in world.has else "raise"


def _changed(ours: list[Any], theirs: list[Any], env_id: int) -> bool:
    """Whether two runs differ for an environment."""
    return any(
        (one.observations[env_id] != other.observations[env_id]).any()
        for one, other in zip(ours, theirs, strict=True)
    )


@law("single")
def a_fault_ends_one_episode(world: World) -> None:
    """The episode is truncated with ``info["fault"]`` and no invented reward; others go on.

    If a worker dies, ``restart`` ends the episodes of its other environments, too.
    """
    acts = dict.fromkeys(["raise", _fault(world)])
    operations = ["step"] if world.autoreset == "disabled" else ["step", "reset"]
    cases = [("restart", *case) for case in itertools.product(acts, operations)]
    for mode, act, operation in [*cases, ("replay", _fault(world), "step")]:
        recovering = world.with_options(workers=2, on_fault=mode)
        with recovering.open(4, length=7) as ours, world.serial.open(4, length=7) as theirs:
            ours.script.set(1, operation, act, after=AT if operation == "step" else 1)
            results, expected = play(ours), play(theirs)
        lost = {0, 1} if (mode, act) == ("restart", "kill") else {1}
        assert {i for i in range(4) if _changed(results, expected, i)} == lost
        for i in {*range(4)} - lost:
            assert_same(*([batch.infos[i] for batch in run] for run in (results, expected)))
        at = next(k for k, result in enumerate(results) if "fault" in result.infos[1])
        row = results[at]
        for i in lost:
            fault = row.infos[i]["fault"]
            assert (fault.env_id, fault.kind) == (i, "died" if act == "kill" else "raised")
            assert (row.rewards[i], row.terminated[i], row.truncated[i]) == (0.0, False, True)
            last = row.infos[i].get("final_obs", row.observations[i])
            assert_same(last, results[at - 1].observations[i])
            assert "\n" not in fault.error
            assert (fault.capsule, fault.replay) == ("", "")
            if act == "kill" and world.kind == "env":
                assert (fault.culprit, fault.worker) == (1, 0)
        fault = row.infos[1]["fault"]
        assert fault.operation == ("step" if act == "kill" else operation)
        assert operation == "reset" or fault.seed == 4
        if (act, operation) == ("raise", "step"):
            assert (fault.step, fault.action, fault.pid) == (AT + 1, AT + 1, None)
            assert "boom" in fault.error
            assert "_act" in fault.traceback


@law("single")
def a_run_with_faults_can_be_repeated(world: World) -> None:
    """The seeds of replacements depend only on the seed of the run and on the faults."""
    runs = []
    for _ in range(2):
        with world.with_options(workers=2, on_fault="restart").open(4) as envs:
            envs.script.set(1, "step", _fault(world), after=AT)
            runs.append([result[:-1] for result in play(envs)])
    assert_same(*runs)


@law("single")
def a_replaced_environment_goes_on(world: World) -> None:
    """After the fault, the environment plays complete episodes again."""
    restarting = world.with_options(workers=2, on_fault="restart")
    with restarting.open(2, length=100) as envs:
        envs.reset(seed=0)
        for _ in range(2):
            envs.step([0, 0])
        envs.script.set(0, "step", _fault(world))
        assert "fault" in envs.step([0, 0]).infos[0]
        if world.autoreset != "same_step":
            envs.reset(env_ids=[0])
        steps = [envs.step([0, 0]).observations[0, 2] for _ in range(4)]
        assert steps == [1, 2, 3, 4]


@law("single")
def a_fault_in_a_reset_is_repeated_by_the_replacement(world: World) -> None:
    """The reset returns the replacement's result, with ``info["fault"]``."""
    with world.with_options(on_fault="restart").open(2) as envs:
        envs.script.set(1, "reset", _fault(world))
        observations, infos = envs.reset(seed=4)
        assert "fault" in infos[1]
        assert infos[1]["seed"] == 5
        assert observations[:, 2:].tolist() == [[0, -1]] * 2
        envs.step([0, 0])


@law("single")
def an_environment_that_always_fails_is_given_up(world: World) -> None:
    """After ``max_restarts``, an error names the environment; ``restart`` starts a new count."""
    policy = FaultPolicy("restart", max_restarts=2)
    for operation, act in (("step", "raise"), ("reset", _fault(world))):
        lost = (0, 1) if act == "kill" else (0,)
        with world.with_options(workers=2, on_fault=policy).open(4) as envs:
            envs.reset()
            envs.script.set(0, operation, act, always=True)

            def reset_and_step(envs: Any) -> None:
                for _ in range(9):
                    envs.reset()
                    envs.step([0] * 4)

            for _ in range(2):
                with pytest.raises(CrashLoopError) as caught:
                    reset_and_step(envs)
            assert caught.value.env_ids == lost
            assert len(caught.value.faults) == 3
            envs.reset(env_ids=[2, 3])
            assert envs.step([0, 0], env_ids=[2, 3]).observations[:, 2].tolist() == [1, 1]
            envs.script.clear(0, operation)
            assert envs.restart() == [*lost]
            with pytest.raises(ResetNeededError):
                envs.step([0] * 4)
            envs.reset(env_ids=lost)
            assert envs.step([0], env_ids=[0]).observations[0, 2] == 1
            envs.script.set(0, "step", "raise")  # the first failure of a new count
            assert "fault" in envs.step([0], env_ids=[0]).infos[0]


@law("single")
def an_environment_that_is_given_up_is_received_once(world: World) -> None:
    """One receipt raises the error, and the results of the other workers are received."""
    policy = FaultPolicy("restart", max_restarts=0)
    with world.with_options(workers=2, on_fault=policy).open(4) as envs:
        envs.reset()
        envs.script.set(0, "step", _fault(world))
        envs.send([0] * 4)
        received, failed = receive_all(envs)
        ids = [row[0] for row in received]
        assert failed in ([0], [0, 1])
        assert {2, 3} <= {*ids} <= {1, 2, 3}
        assert len(ids) == len({*ids})


def _ended(world: World, envs: Any) -> tuple[list[list[tuple[float, float]]], list[Any]]:
    """Play; return the draws and lengths of the episodes that ended, and all infos."""
    ended: list[list[tuple[float, float]]] = [[] for _ in range(4)]
    infos = [*envs.reset(seed=3).infos]
    for _ in range(16):
        result = envs.step([1] * 4)
        infos += result.infos
        for i in np.flatnonzero(result.terminated):
            last = result.infos[i].get("final_obs", result.observations[i])
            ended[i].append((last[0], last[2]))
        over = np.flatnonzero(result.terminated | result.truncated)
        if world.autoreset == "disabled" and over.size:
            infos += envs.reset(env_ids=over).infos
    return ended, infos


@law("single", "concurrent")
def an_environment_is_replaced_while_others_are_in_the_same_step(world: World) -> None:
    """Its part of the step is sent again, and is not confused with theirs, which end later."""
    with world.with_options(workers=1, on_fault="restart").open(3, length=99) as envs:
        envs.reset(seed=3)
        for k, failing in enumerate((0, 2)):
            envs.script.set(failing, "step", "raise")
            envs.script.set(1, "step", "wait")
            later = threading.Timer(0.1, envs.script.open, [1])
            later.start()
            try:
                result = envs.step([5, 6, 7])
            finally:
                later.join()
            assert ["fault" in info for info in result.infos] == [i == failing for i in range(3)]
            assert steps_of(envs)[1] == k + 1
            assert result.truncated.tolist() == [i == failing for i in range(3)]
            envs.reset(env_ids=[failing])


@law("single")
def a_retry_repeats_the_episode(world: World) -> None:
    """With ``retry=``, the episodes that end are those of a run without faults.

    If an episode fails in each retry, it is given up, and the environment starts another one.
    """
    policy = FaultPolicy("restart", retry=2, max_restarts=1000)
    with world.serial.open(4) as theirs:
        expected, _ = _ended(world, theirs)
    retrying = world.with_options(workers=2, on_fault=policy)
    for operation in ("step", "reset"):
        with retrying.open(4) as envs:
            envs.script.set(1, operation, _fault(world), after=4 if operation == "step" else 1)
            ended, infos = _ended(world, envs)
        for ours, episodes in zip(ended, expected, strict=True):
            assert len(ours) >= 2
            assert ours == episodes[: len(ours)]
        retries = {info["fault"].retry for info in infos if "fault" in info}
        assert retries == {info["retry"] for info in infos if "retry" in info}
        # A process that replays an episode to take the place of a recycled worker follows the
        # script too. If the fault comes there, the worker simply stays.
        recycles = getattr(world.backend, "recycle", None) is not None
        assert retries == {1} or (recycles and not retries)
    with retrying.open(4) as envs:
        envs.script.set(1, "step", "raise", always=True)
        ended, infos = _ended(world, envs)
    assert [ended[i] for i in (0, 2, 3)] == [expected[i] for i in (0, 2, 3)]
    assert [info["fault"].retry for info in infos if "fault" in info][:6] == [1, 2, 0, 1, 2, 0]


@law("single")
def an_environment_that_cannot_be_made_again_is_given_up(world: World) -> None:
    """The others go on, and ``restart`` replaces it once it can be made."""
    for mode in ("restart", "replay"):
        policy = FaultPolicy(mode, max_restarts=4)
        with world.with_options(workers=2, on_fault=policy).open(4, length=100) as envs:
            envs.reset(seed=3)
            envs.script.set(1, "make", "raise", always=True)
            envs.script.set(1, "step", "raise")
            with pytest.raises(CrashLoopError, match="given up after 5 failures") as caught:
                envs.step([1] * 4)
            assert caught.value.env_ids == (1,)
            assert [fault.operation for fault in caught.value.faults] == ["step", *["make"] * 4]
            with pytest.raises(CrashLoopError):
                envs.step([0] * 4)
            result = envs.step([4, 5, 6], env_ids=[0, 2, 3])
            assert result.observations[:, 2].tolist() == [2, 2, 2]
            with pytest.raises(AgymError):
                envs.restart()
            envs.script.clear(1, "make")
            assert envs.restart() == [1]
            envs.reset(env_ids=[1])
            assert envs.step([0] * 4).observations[:, 2].tolist() == [3, 1, 3, 3]


@law("single")
def a_replacement_that_fails_is_made_again(world: World) -> None:
    """The step has one fault, also if the constructor and the reset of the replacement raise."""
    with world.with_options(workers=2, on_fault="restart").open(4, length=9) as envs:
        for operations in (["make", "step"], ["make", "reset", "step"]):
            envs.reset(seed=3)
            envs.step([1] * 4)
            for operation in operations:
                envs.script.set(1, operation, "raise")
            result = envs.step([2] * 4)
            assert (result.rewards[1], result.truncated[1]) == (0.0, True)
            assert result.infos[1]["fault"].kind == "raised"
            last = result.infos[1].get("final_obs", result.observations[1])
            assert last[2:].tolist() == [1, 1]
            assert result.observations[[0, 2, 3], 2].tolist() == [2, 2, 2]
            envs.reset()
            assert envs.step([3] * 4).observations[:, 2].tolist() == [1] * 4


@law("single")
def an_environment_is_replaced_also_if_its_close_raises(world: World) -> None:
    """The error of the old environment's ``close`` is dropped; others go on."""
    exits = ["system exit"] if "processes" in world.has else []
    with world.with_options(workers=2, on_fault="restart").open(4, length=9) as envs:
        for act in ("raise", "raise unpicklable", *exits):
            envs.reset(seed=3)
            envs.script.set(1, "step", "raise")
            envs.script.set(1, "close", act)
            result = envs.step([1] * 4)
            assert result.truncated.tolist() == [False, True, False, False]
            assert envs.step([1] * 4).observations[[0, 2, 3], 2].tolist() == [2, 2, 2]
            assert not envs.script.is_set(1, "close")


@law("single")
def faults_are_numbered_by_their_episodes(world: World) -> None:
    """A replacement continues its predecessor's count of episodes; ``stats`` counts the faults."""
    with world.with_options(on_fault="restart").open(3, length=100) as envs:
        envs.reset(seed=1)
        episodes = []
        for _ in range(3):
            envs.script.set(1, "step", "raise")
            episodes.append(envs.step([0] * 3).infos[1]["fault"].episode)
            envs.reset(env_ids=[1]) if world.autoreset == "disabled" else envs.step([0] * 3)
        assert episodes == [1, 2, 3]
        assert [env.faults for env in envs.stats().envs] == [0, 3, 0]


@law("single")
def all_environments_may_fail_at_once(world: World) -> None:
    """Each has its own fault, and all can be used after a reset."""
    with world.with_options(workers=2, on_fault="replay").open(4) as envs:
        envs.reset(seed=1)
        for i in range(4):
            envs.script.set(i, "step", "raise")
        result = envs.step([1] * 4)
        assert [info["fault"].env_id for info in result.infos] == [0, 1, 2, 3]
        assert result.truncated.all()
        envs.reset()
        assert envs.step([1] * 4).observations[:, 2].tolist() == [1] * 4
    if "processes" in world.has:
        with world.with_options(workers=2, on_fault="replay").open(4) as envs:
            envs.reset(seed=1)
            for i in (0, 2):  # one in each worker
                envs.script.set(i, "step", "kill")
            infos = envs.step([1] * 4).infos
            assert ["fault" in info for info in infos] == [True, False, True, False]


@law("processes", "not_same_step")
def a_replay_leaves_episodes_ended_that_had_ended(world: World) -> None:
    """A worker dies after the episode of environment 0: the next steps are as without the fault.

    The episode has ended by itself or by a fault, and steps are of all, of some, or are sent.
    """
    options: Any = {"workers": 1, "on_fault": "replay"}

    def send_and_receive(envs: Any) -> Any:
        envs.send([1, 1])
        batch = envs.recv(min_envs=2)
        order = np.argsort(batch.env_ids)
        return *(column[order] for column in batch[1:5]), [batch.infos[k] for k in order]

    steps: list[Callable[[Any], Any]] = [
        lambda envs: envs.step([1, 1]),
        lambda envs: envs.step([1, 1], env_ids=[0, 1]),
    ]
    cases = [*itertools.product(steps, (False, True)), (send_and_receive, True)]
    for step, by_fault in cases:
        with (
            world.with_options(**options).open(2, length=100) as ours,
            world.serial.with_options(on_fault="replay").open(2, length=100) as theirs,
        ):
            for envs in (ours, theirs):
                envs.reset(seed=5, env_ids=[1])
                envs.reset(seed=5, env_ids=[0], options={"length": 100 if by_fault else 2})
                if by_fault:
                    envs.script.set(0, "step", "raise", after=1)
            ours.script.set(1, "step", "kill", after=2)
            for k in range(4):
                found, expected = step(ours), step(theirs)
                assert ("fault" in found[4][1]) == (k == 2)
                assert ("fault" in found[4][0]) == (by_fault and k == 1)
                for one, other in zip(found[:4], expected[:4], strict=True):
                    np.testing.assert_array_equal(one[0], other[0])
