"""What cannot be is refused with one clear error, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import agym
from tests.support.drivers import each_api, played
from tests.support.envs.plain_envs import Tally as SingleTally
from tests.support.envs.vector_envs import Tally, Trap

VECTOR: dict[str, Any] = {"backend": "vector", "autoreset": "next_step"}


def sync(num_envs: int, **keywords: Any) -> Any:
    return SyncVectorEnv([partial(gymnasium.make, "CartPole-v1")] * num_envs, **keywords)


class Silent(Tally):
    metadata = {"render_modes": []}  # noqa: RUF012


class Other(Tally):
    """Makes one environment too many."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs + 1)


class Partial(Tally):
    """Returns the results of some environments at a time, as EnvPool and ALE's VectorEnv can."""

    def __init__(self, num_envs: int, batch_size: int = 0, as_envpool: bool = False) -> None:
        super().__init__(num_envs)
        self.batch_size = batch_size or num_envs
        if as_envpool:
            self.config = {"batch_size": vars(self).pop("batch_size")}


PARTS_OF = (
    r"has batch_size={0}, but agym steps all {1} environments .* together: omit batch_size\."
    r" With workers=N.* recv\(min_envs={0}\) returns the first that are done"
)


class Differs(Tally):
    """Its spaces depend on how many there are."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.single_action_space = spaces.Discrete(num_envs)


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("Acrobot-v1", {}, "env='Acrobot-v1' has no vector_entry_point.*backend='process'"),
        ([Tally], {}, "not list: use backend='process'"),
        (SingleTally, {}, "has no num_envs= parameter"),
        (7, {}, "not int"),
        (lambda num_envs: SingleTally(), {}, "environments 0 to 3: Tally is not a .*VectorEnv"),
        (Other, {}, "Other has num_envs=5, but its constructor was called with num_envs=4"),
        (Silent, {}, "Silent does not declare its autoreset mode"),
        (Tally, {"autoreset": "same_step"}, "autoreset_mode=NEXT_STEP.*autoreset='next_step'"),
        (
            partial(sync, autoreset_mode=AutoresetMode.DISABLED),
            {"autoreset": "next_step"},
            "use autoreset='disabled'",
        ),
        (Partial, {"batch_size": 2}, f"environments 0 to 3: Partial {PARTS_OF.format(2, 4)}"),
        (partial(Partial, as_envpool=True), {"batch_size": 1}, f"Partial {PARTS_OF.format(1, 4)}"),
        (
            Partial,
            {"batch_size": 4, "workers": 2},
            f"environments . to .: Partial {PARTS_OF.format(4, 2)}",
        ),
        (Differs, {"num_envs": 3, "workers": 2}, "environment 1 does not fit: its action_space"),
        (Tally, {"on_fault": "replay"}, "on_fault='replay'.*on_fault='restart'"),
        (Tally, {"on_fault": agym.FaultPolicy(capsule_dir="x")}, "capsule_dir replays the episode"),
        (Tally, {"on_fault": agym.FaultPolicy("restart", retry=2)}, "retry=2 replays the episode"),
        (Tally, {"recycle": agym.Recycle(episodes=5)}, r"use .*backends\.Process\(recycle="),
    ],
)
def test_what_cannot_be_made(env: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(agym.UsageError, match=message):
        agym.make(env, **{"num_envs": 4, "backend": "vector", **options})


def test_a_batch_of_all_environments_is_no_partial_one() -> None:
    for options in ({}, {"batch_size": 4}):
        with agym.make(Partial, 4, backend="vector", **options) as envs:
            envs.reset()
            envs.step([1] * 4)


@pytest.mark.parametrize("backend", ["serial", "thread", "process", "asyncio"])
@pytest.mark.parametrize("env", [Tally, partial(Tally), Tally(2)], ids=["class", "partial", "made"])
def test_other_backends(env: Any, backend: str) -> None:
    message = f"Tally is a VectorEnv.*backend='{backend}' cannot run: use backend='vector'"
    with pytest.raises(agym.UsageError, match=message):
        agym.make(env, 2, backend=backend)


def test_one_that_was_made_already() -> None:
    trap = Trap()
    env = Tally(3, trap)
    with agym.make(env, output="array") as envs:
        assert len(envs) == 3
        envs.reset()
        assert envs.step([1] * 3).rewards.tolist() == [1] * 3
    assert (trap.closed, trap.made) == (1, [3])
    refused: list[dict[str, Any]] = [{"num_envs": 2}, {"workers": 2}, {"gravity": 1}]
    for options in refused:
        with pytest.raises(agym.UsageError, match="this Tally was made with num_envs=3"):
            agym.make(env, **options)
    with pytest.raises(agym.UsageError, match="on_fault='restart' replaces a Tally"):
        agym.make(env, on_fault="restart")
    assert trap.closed == 1
    with agym.make(Tally(3, trap)) as envs:
        envs.reset()
        with pytest.raises(agym.UsageError, match="cannot be made again: pass a class"):
            envs.restart([0, 1, 2])


@each_api
def test_parts_of_a_program(api: str) -> None:
    with played(api, Tally, 8, workers=2, **VECTOR) as envs:
        envs.reset(seed=0)
        refused: list[Callable[[], Any]] = [
            lambda: envs.step([0, 0], env_ids=[0, 1]),
            lambda: envs.step([0] * 7, env_ids=range(7)),
            lambda: envs.send([0, 0], [2, 1]),
            lambda: envs.reset(env_ids=[1]),
            lambda: envs.restart([1]),
            lambda: envs.envs[1].step(0),
            lambda: envs.envs[1].reset(),
            lambda: envs.envs[1].close(),
        ]
        if api == "async":
            refused.pop()  # it is a coroutine, which refuses when it runs
        for call in refused:
            with pytest.raises(agym.UsageError, match=r"environments . to . are one VectorEnv"):
                call()
        with pytest.raises(agym.UsageError, match=r"environments 4 to 7 .*integer as the seed"):
            envs.reset(seed=[0, 1, 2, 3, 9, 8, 7, 6])
        result = envs.step([1] * 4, env_ids=[4, 5, 6, 7])
        assert result.observations[:, 1].tolist() == [1] * 4
        assert envs.step([1] * 8).observations[:, 1].tolist() == [1] * 4 + [2] * 4
        assert envs.envs[5].render() == "frame 1" if api == "sync" else True
        with pytest.raises(agym.UsageError, match="but got 7"):
            envs.step([0] * 7)


def test_a_worker_for_each_environment_has_handles() -> None:
    trap = Trap()
    with agym.make(partial(Tally, trap=trap), 3, workers=3, **VECTOR) as envs:
        observations = [env.reset(seed=i)[0] for i, env in enumerate(envs)]
        assert [row.tolist() for row in observations] == [[0, 0, 1]] * 3
        assert envs[1].step(4)[1] == 4.0
        envs[0].close()
        assert trap.closed == 1
        with pytest.raises(agym.ClosedError):
            envs.step([0] * 3)
        assert envs.step([2, 2], env_ids=[1, 2])[1] == [2.0, 2.0]


def test_attributes_and_methods() -> None:
    with agym.make(Tally, 4, backend="vector", workers=2) as envs:
        envs.reset()
        assert envs.gravity == envs.unwrapped.gravity == [9.8] * 4
        envs.set_attr("gravity", 1.5)
        assert envs.get_attr("gravity") == [1.5] * 4
        with pytest.raises(ExceptionGroup) as caught:
            envs.set_attr("gravity", [1.0, 2.0, 3.0, 4.0])
        assert "'gravity' is one attribute of Tally" in str(caught.value.exceptions[0])
        assert envs.call("render")[0] == ("frame 0", "frame 1")
        assert envs.render() == ["frame 0", "frame 1"] * 2
        with pytest.raises(AttributeError):
            envs.get_attr("no_such_thing")
    with agym.make(sync, 4, backend="vector", workers=2) as envs:
        envs.set_attr("gravity", [1.0, 2.0, 3.0, 4.0])
        assert envs.get_attr("gravity") == [1.0, 2.0, 3.0, 4.0]
        assert envs.call("get_wrapper_attr", "length") == [0.5] * 4


@each_api
def test_a_program_is_sent_and_received_whole(api: str) -> None:
    with played(api, Tally, 6, workers=2, **VECTOR) as envs:
        envs.reset()
        for k in range(1, 4):
            envs.send([4, 5, 6], [3, 4, 5])
            envs.send([1, 2, 3], [0, 1, 2])
            received: list[list[float]] = []
            while len(received) < 6:
                batch = envs.recv()
                assert len(batch.env_ids) in (3, 6)
                columns = batch.env_ids, batch.observations[:, 1], batch.rewards
                received += np.stack(columns, axis=1).tolist()
            assert sorted(received) == [[i, k, i + 1] for i in range(6)]


def test_a_base_class_that_another_library_wrote_to() -> None:
    """ALE writes its mode into ``VectorEnv.metadata``: it is not that of those without any."""

    class Bare(Tally):
        metadata = VectorEnv.metadata

    VectorEnv.metadata["autoreset_mode"] = AutoresetMode.NEXT_STEP
    try:
        with pytest.raises(agym.UsageError, match="Bare does not declare its autoreset mode"):
            agym.make(Bare, 2)
    finally:
        del VectorEnv.metadata["autoreset_mode"]
