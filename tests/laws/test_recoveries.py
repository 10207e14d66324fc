"""Faults of all kinds at any moment, under every recovery: no transition is lost or doubled.

Every observation names its episode (by the draw), its step and its action, so that each result
can be compared with what was sent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

import agym
from agym.testing import World
from agym.testing.scripted import EXCEPTIONS
from tests.support.core_selection import examples
from tests.support.patience import deadline, patience
from tests.support.worlds import ASYNCIO, COROUTINES, PROCESS, THREAD, over

N = 6
ids_of_some = st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True).map(sorted)
env_ids = st.integers(0, N - 1)
actions = st.integers(0, 9)
operations = st.sampled_from(["step", "step", "reset"])


class Recoveries(RuleBasedStateMachine):
    """Environments that fail and are replaced, and a model of what each must return next.

    Attributes:
        world: Where the environments live, with the recovery.
        draw: By environment, the draw of its episode.
        step_count: By environment, the steps of its episode.
        is_over: By environment, whether its episode has ended.
        last: By environment, its last observation.
    """

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        # A thread that misses its deadline is left behind, which is a warning.
        self.stack.enter_context(warnings.catch_warnings(action="ignore", category=RuntimeWarning))
        self.envs = self.stack.enter_context(self.world.open(N))
        self.draw = [0.0] * N
        self.step_count = [0] * N
        self.is_over = [False] * N
        self.last: list[list[float]] = [[]] * N
        self.reset([*range(N)], 0)

    # ---------------------------------------------------------------- what goes wrong

    @rule(i=env_ids, operation=operations, act=st.sampled_from([*EXCEPTIONS]))
    def let_raise(self, i: int, operation: str, act: str) -> None:
        self.envs.script.set(i, operation, act)

    @precondition(lambda self: "processes" in self.world.has)
    @rule(i=env_ids, operation=operations, act=st.sampled_from(["kill", "exit"]))
    def let_die(self, i: int, operation: str, act: str) -> None:
        self.envs.script.set(i, operation, act)

    @rule(i=env_ids, chance=st.integers(0, 3))
    def let_hang(self, i: int, chance: int) -> None:
        if chance == 0:  # each costs a deadline
            self.envs.script.set(i, "step", "wait")

    @precondition(lambda self: "processes" in self.world.has)
    @rule(number=st.integers(0, 1))
    def kill_worker(self, number: int) -> None:
        pid = self.envs.stats().workers[number].pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it was killed before
                os.kill(pid, signal.SIGKILL)

    @rule()
    def let_go(self) -> None:
        """What was left behind returns, too late."""
        self.envs.script.open_all()

    # ---------------------------------------------------------------- what is asked

    @rule(ids=ids_of_some, seed=st.none() | st.integers(0, 99))
    def reset(self, ids: list[int], seed: int | None) -> None:
        seeds = None if seed is None else [seed + i for i in ids]
        observations, infos = self.envs.reset(seed=seeds, env_ids=ids)
        for i in range(N):
            if i in ids:
                self.check_start(i, observations[i], infos[i])
            else:
                assert observations[i].tolist() == self.last[i]

    @rule(ids=ids_of_some | st.just([*range(N)]), action=actions)
    def step(self, ids: list[int], action: int) -> None:
        result = self.envs.step([action] * len(ids), env_ids=ids)
        assert len(result.infos) == len(ids)
        for k, i in enumerate(ids):
            self.check_step(i, action, [column[k] for column in result])

    @rule(i=env_ids, action=actions)
    def step_one(self, i: int, action: int) -> None:
        self.check_step(i, action, [*self.envs[i].step(action)])

    @precondition(lambda self: self.world.api == "async")
    @rule(ids=ids_of_some, action=actions)
    def reset_and_step(self, ids: list[int], action: int) -> None:
        """Dispatch a step before the reset has ended."""

        async def dispatch(envs: Any) -> Any:
            reset = envs.reset(env_ids=ids)
            step = envs.step([action] * len(ids), env_ids=ids)
            return await reset, await step

        reset, result = self.envs.run(dispatch(self.envs.envs))
        for k, i in enumerate(ids):
            self.check_start(i, reset.observations[i], reset.infos[i])
            self.check_step(i, action, [column[k] for column in result])

    @rule(ids=ids_of_some, action=actions, least=st.integers(1, 3))
    def send_and_receive(self, ids: list[int], action: int, least: int) -> None:
        self.envs.send([action] * len(ids), ids)
        received = []
        for batch in self.envs.as_completed(min_envs=least):
            for k, i in enumerate(batch.env_ids.tolist()):
                received.append(i)
                self.check_step(i, action, [column[k] for column in batch[1:]])
        assert sorted(received) == ids

    @rule(ids=ids_of_some)
    def render(self, ids: list[int]) -> None:
        try:
            frames = self.envs.render(ids)
        except (agym.WorkerDied, agym.StepTimeout, agym.AgymErrorGroup):
            return  # nothing replaces the frame of a worker that has died, or is late
        assert len(frames) == len(ids)

    def teardown(self) -> None:
        self.envs.script.open_all()
        self.stack.close()
        for thread in threading.enumerate():
            if thread.name.startswith("agym-"):
                thread.join(patience())  # it was left behind

    # ---------------------------------------------------------------- the model

    def check_start(self, i: int, observation: Any, info: dict[str, Any]) -> None:
        draw, _, step, action = observation.tolist()
        assert (step, action) == (0, -1)
        assert draw == info["draw"]
        self.start(i, observation)

    def start(self, i: int, observation: Any) -> None:
        self.draw[i], self.step_count[i], self.is_over[i] = observation[0], 0, False
        self.last[i] = observation.tolist()

    def check_step(self, i: int, action: int, row: list[Any]) -> None:
        observation, reward, terminated, truncated, info = row
        final = info.get("final_obs", observation).tolist()
        if "fault" in info:
            assert info["fault"].env_id == i
            assert (reward, terminated, truncated) == (0.0, False, True)
            assert final == self.last[i], "not the last observation that is known"
        elif self.is_over[i] and self.world.autoreset == "next_step":
            assert (reward, terminated, truncated) == (0.0, False, False)
            self.check_start(i, observation, info)
            return
        elif self.is_over[i]:  # it holds still
            assert (final, reward) == (self.last[i], 0.0)
            return
        else:
            self.step_count[i] += 1
            draw, _, *rest = final
            assert (draw, rest) == (self.draw[i], [self.step_count[i], action])
            assert reward == draw + self.step_count[i] / 16
            assert bool(terminated) is (self.step_count[i] == 3)
        self.last[i] = observation.tolist()
        if terminated or truncated:
            self.is_over[i] = True
            if self.world.autoreset == "same_step":
                assert observation[2:].tolist() == [0, -1]
                self.start(i, observation)


RECOVERIES: Any = {"next_step": "replay", "same_step": "restart", "disabled": "replay"}
WORLDS = [
    replace(world, autoreset=mode).with_options(
        on_fault=agym.FaultPolicy(recovery, max_restarts=10**6)
    )
    for world in (
        replace(PROCESS, api="async"),
        COROUTINES,
        replace(THREAD, workers=3),
        replace(ASYNCIO, api="async"),
    )
    for mode, recovery in RECOVERIES.items()
]


@over(*WORLDS)
def test_no_transition_is_lost_or_doubled(world: World) -> None:
    """Whatever fails, whenever, each row is a step that was sent, or says what fault there was."""
    world = world.with_options(timeout=deadline(0.4))
    machine = type("Machine", (Recoveries,), {"world": world})
    run_state_machine_as_test(
        machine,
        settings=settings(
            examples(10), stateful_step_count=40, suppress_health_check=list(HealthCheck)
        ),
    )


test_no_transition_is_lost_or_doubled.draws_examples = True  # type: ignore[attr-defined]
