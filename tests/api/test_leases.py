"""Large batches are the caller's for ever, and mostly no copies."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.core.engine.batches.leases import LEASED, LOST
from tests.support.backends import SERIAL_OR_FORK
from tests.support.core_selection import examples
from tests.support.drivers import APIS, FORKED, Setup, each_mode, everywhere, played
from tests.support.insides import backend_of, engine_of, leases_of

OPTIONS: dict[str, Any] = {"autoreset": "next_step", "output": "array"}
IMAGE, FLOATS = (192, 160, 3), (36_000,)


class Large(gym.Env[Any, Any]):
    """Counts its steps in all that it shows, two leaves of which are large."""

    observation_space = spaces.Dict(
        image=spaces.Box(0, 255, IMAGE, np.uint8),
        deep=spaces.Tuple([spaces.Box(-1, 999, FLOATS, np.float32), spaces.Discrete(1000)]),
    )
    action_space = spaces.Discrete(5)

    def __init__(self, episode: int = 7) -> None:
        self.episode = episode
        self.image, self.floats = np.zeros(IMAGE, np.uint8), np.zeros(FLOATS, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self.show(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self.show(), float(self.count), self.count == self.episode, False, {}

    def show(self) -> Any:
        self.image[:] = self.floats[:] = self.count
        return {"image": self.image, "deep": (self.floats, self.count)}


# What somebody may keep of a batch: something over its memory.
KEEPS: dict[str, Callable[[Any], Any]] = {
    "image": lambda obs: obs["image"],
    "row": lambda obs: obs["image"][1],
    "strided": lambda obs: obs["image"][::2, ::-3, :, 1].T,
    "leaf": lambda obs: obs["deep"][0],
    "element": lambda obs: obs["deep"][0][2, 5:6],
    "small": lambda obs: obs["deep"][1],
    "buffer": lambda obs: memoryview(obs["image"]),
    "flat": lambda obs: obs["image"].reshape(-1).view(np.int8),
}


def all_are(kept: Any, count: int) -> bool:
    return bool((np.asarray(kept) == count).all())


@everywhere
@each_mode
@examples(5)
@given(
    plan=st.lists(
        st.tuples(st.sampled_from(sorted(KEEPS)), st.integers(0, 12)), min_size=5, max_size=25
    )
)
def test_nothing_that_is_held_changes(setup: Setup, mode: Any, plan: list[tuple[str, int]]) -> None:
    """Something of each batch is kept for some steps, and stays as it was."""
    options = {**OPTIONS, **setup.options, "autoreset": mode}
    with agym.make(setup.adapt(Large), 4, **options) as envs:
        held: list[tuple[int, int, Any]] = []
        observations = envs.reset(seed=1).observations
        for now, (name, steps) in enumerate(plan):
            count = int(observations["deep"][1][0])
            assert all_are(observations["image"], count)
            held.append((now + steps, count, KEEPS[name](observations)))
            observations = envs.step([0, 1, 2, 3]).observations
            assert all(all_are(kept, count) for _, count, kept in held)
            held = [entry for entry in held if entry[0] > now]
    assert all(all_are(kept, count) for _, count, kept in held)


def memory(batch: Any) -> int:
    return int(batch.observations["image"].__array_interface__["data"][0])


@pytest.mark.parametrize("backend", ["thread", *SERIAL_OR_FORK])
@pytest.mark.parametrize("api", APIS)
def test_a_loop_copies_nothing(backend: Any, api: str) -> None:
    """Batches are in memory that hosts write into; it is used again when nobody has it any more."""
    with played(api, partial(Large, 99), 4, **OPTIONS, backend=backend) as envs:
        planes = engine_of(envs.envs).life.table.planes.values()
        blocks = [block for plane in planes for block in plane.observations]
        written = {block.__array_interface__["data"][0] for block in blocks}
        envs.reset()
        before, seen = None, set()
        for _ in range(12):
            batch = envs.step([0] * 4)
            assert memory(batch) in written
            assert before is None or memory(before) != memory(batch)
            seen.add(memory(batch))
            before = batch
        assert len(seen) <= 3
        rollout = [envs.step([0] * 4) for _ in range(9)]
        copies = [batch for batch in rollout if memory(batch) not in written]
        assert copies  # more than there are planes
        assert len({*map(memory, rollout)}) == 9
        del rollout, copies, before, batch
        assert memory(envs.step([0] * 4)) in written


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("CartPole-v1", {}),  # its batches are small
        (Large, {"autoreset": "disabled"}),  # the engine reads the latest batch again
        (Large, {"on_fault": "restart"}),
        (Large, {"copy": False}),
    ],
)
def test_which_batches_are_copied(env: Any, options: dict[str, Any]) -> None:
    with agym.make(env, 4, **{**OPTIONS, "backend": "serial", **options}) as envs:
        assert not engine_of(envs).life.table.leasable


def test_holding_still_does_not_depend_on_what_the_caller_did() -> None:
    with agym.make(partial(Large, 2), 4, output="array", autoreset="disabled") as envs:
        envs.reset()
        for _ in range(3):
            observations = envs.step([0] * 4).observations
            assert all_are(observations["image"][1], int(observations["deep"][1][1]))
            observations["image"][:] = 77
        after = envs.reset(env_ids=[0]).observations
        assert all_are(after["image"][0], 0)
        assert all_are(after["image"][1:], 2)


@everywhere
def test_a_batch_outlives_its_environments(setup: Setup) -> None:
    with agym.make(setup.adapt(Large), 4, **OPTIONS, **setup.options) as envs:
        envs.reset()
        batches = [envs.step([0] * 4).observations for _ in range(6)]
    gc.collect()
    for k, observations in enumerate(batches, 1):
        assert all_are(observations["image"], k)
        observations["image"][:] = 5


async def test_steps_sent_one_behind_the_other_have_planes_of_their_own() -> None:
    async with agym.make_async(partial(Large, 99), 4, **FORKED, workers=2) as envs:
        await envs.reset()
        held = []
        for k in range(0, 20, 2):
            step = envs.step([0] * 4)
            reset = envs.reset()  # behind it, though nobody has awaited it
            after, start = await step, await reset
            held += [(1, after.observations["image"]), (0, start.observations["image"])]
            assert all(all_are(image, count) for count, image in held)
            if k % 6 == 0:
                held = held[-3:]


@pytest.fixture
def envs() -> Iterator[agym.Envs]:
    """Four environments in two workers, with long episodes."""
    with agym.make(partial(Large, 99), 4, **FORKED, workers=2, **OPTIONS) as envs:
        envs.reset(seed=1)
        yield envs


def test_the_last_reference_may_go_in_another_thread(envs: Any) -> None:
    bag: list[Any] = []
    stop = threading.Event()

    def drop() -> None:
        while not stop.is_set():
            if len(bag) > 2:
                bag.pop(0)

    thread = threading.Thread(target=drop)
    thread.start()
    try:
        for k in range(1, 95):
            observations = envs.step([0] * 4).observations
            bag.append(observations)
            assert all_are(observations["image"], k)
    finally:
        stop.set()
        thread.join()


def test_a_forked_child_keeps_what_it_has(envs: Any) -> None:
    observations = envs.step([0] * 4).observations
    child_reads, parent_writes = os.pipe()
    child = os.fork()
    if child == 0:
        code = 3
        try:
            os.read(child_reads, 1)
            code = 0 if all_are(observations["image"], 1) else 1
        finally:
            os._exit(code)
    try:
        for _ in range(9):
            del observations
            observations = envs.step([0] * 4).observations
    finally:
        os.write(parent_writes, b"x")
        _, status = os.waitpid(child, 0)
        os.close(child_reads)
        os.close(parent_writes)
    assert os.waitstatus_to_exitcode(status) == 0
    assert all_are(observations["image"], 10)


def test_a_death_frees_the_plane(envs: Any) -> None:
    for _ in range(3):
        step = envs.step([0] * 4)
        os.kill(backend_of(envs).pids[1], 9)
        with pytest.raises(agym.WorkerDied):
            envs.step([0] * 4)
        envs.restart()
        assert all_are(step.observations["image"], 1)
        envs.reset(seed=1)
    states = leases_of(envs)._states
    assert [*states.values()].count(0) >= 2


class Interrupted(int):
    """The number of a plane, which calls a function when it is looked up for the second time."""

    looked_up = 0
    then: Callable[[], None] = staticmethod(lambda: None)

    def __hash__(self) -> int:
        self.looked_up += 1
        if self.looked_up == 2:
            self.then()
        return int(self)


def test_a_plane_that_a_fork_shares_is_not_used_again() -> None:
    """Though its last array is freed in one thread while another is about to fork."""
    with agym.make(Large, 4, **FORKED, **OPTIONS) as envs:
        planes = leases_of(envs)
        plane = Interrupted(planes.take(set()))
        arrays = planes.lease(plane)
        seen = []

        def fork() -> None:
            planes.before_fork()
            seen.append(dict(planes._states)[int(plane)])

        plane.looked_up, plane.then = 0, fork
        del arrays
        assert seen in ([], [LEASED]) or planes._states[int(plane)] == LOST
