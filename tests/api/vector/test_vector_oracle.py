"""The Gymnasium API gives what SyncVectorEnv gives: every array, every info, every mask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import agym
from tests.support.backends import OF_ENVS
from tests.support.envs.plain_envs import Letters, Nested, Tally
from tests.support.equality import same_array, same_values

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
STEPS = 150


def short_cartpole() -> gymnasium.Env[Any, Any]:
    env = gymnasium.make("CartPole-v1", max_episode_steps=30)
    return gymnasium.wrappers.RecordEpisodeStatistics(env)


def lake() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("FrozenLake-v1")


class Spelling(Tally):
    """Observes letters beside numbers, in a space that Gymnasium does not know."""

    def __init__(self) -> None:
        super().__init__(length=40)
        numbers = self.observation_space
        self.observation_space = gymnasium.spaces.Dict(numbers=numbers, letters=Letters("a"))

    def _observe(self, action: Any) -> Any:
        return {"numbers": super()._observe(action), "letters": "a" * (1 + self.now % 3)}


class Telling(Tally):
    """Tells something of another type after each step."""

    def __init__(self) -> None:
        super().__init__(length=40)

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        now = self.now
        row = np.arange(3, dtype=np.float32) + now
        infos: list[dict[str, Any]] = [
            {"whole": now, "part": 0.5 * now, "even": now % 2 == 0},
            {"small": np.int8(now), "short": np.float32(now), "long": np.longlong(now)},
            {"flag": np.bool_(now % 2), "part": 0.25 * now},
            {"row": row, "rows": np.ones((2, 2), np.uint8), "one": np.array(now)},
            {"outer": {"inner": now, "row": row, "deep": {"last": 0.5}}, "empty": {}},
            {"_part": now, "part": 0.5},
            {"part": 1.5, "final_obs": row},
            {"other": now} if self.seeded % 2 else {"part": now},
            {"complex": 1j * now, "numbers": np.complex64(now)},
            {},
        ]
        return *result, infos[now % len(infos)]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeded = seed if seed is not None else self.seeded + 1
        return super().reset(seed=seed, options=options)


def grid() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("minigrid:MiniGrid-DoorKey-5x5-v0", max_steps=30)


def instructed() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("minigrid:BabyAI-GoToLocal-v0", max_steps=30)


FACTORIES = {
    "cartpole": short_cartpole,
    "lake": lake,
    "nested": Nested,
    "custom space": Spelling,
    "infos": Telling,
    "MiniGrid": grid,
    "BabyAI": instructed,
}


def assert_same_infos(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Compare keys, masks, dtypes and values; times are the machine's."""
    assert ours.keys() == theirs.keys()
    if "final_obs" not in theirs:
        assert [*ours] == [*theirs]
    for key, value in theirs.items():
        if isinstance(value, dict):
            assert_same_infos(ours[key], value)
        elif key == "t":
            assert same_array(ours[key] > 0, value > 0)
        elif value.dtype.hasobject:
            assert same_values(ours[key].tolist(), value.tolist()), key
        else:
            assert same_array(ours[key], value), key


def assert_same(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    """Compare two results, the observations with them."""
    assert len(ours) == len(theirs)
    for mine, other in zip(ours[:-1], theirs[:-1], strict=True):
        assert same_values(mine, other)
    assert_same_infos(ours[-1], theirs[-1])


@contextmanager
def both(
    factories: list[Any], backend: str, mode: AutoresetMode = AutoresetMode.NEXT_STEP
) -> Iterator[tuple[Any, Any]]:
    """Open agym's and Gymnasium's vector environment."""
    theirs = SyncVectorEnv(factories, autoreset_mode=mode)
    ours = agym.AgymVectorEnv(factories, autoreset_mode=mode, **OF_ENVS[backend])
    with closing(ours), closing(theirs):
        yield ours, theirs


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("backend", OF_ENVS)
def test_results_are_gymnasiums(backend: str, name: str, mode: AutoresetMode) -> None:
    """Whether a step is one call or two halves."""
    if name in ("MiniGrid", "BabyAI"):
        pytest.importorskip("minigrid", reason="the extra `ci`")
    factories = [FACTORIES[name]] * 4
    with both(factories, backend, mode) as (ours, theirs):
        assert ours.observation_space == theirs.observation_space
        assert ours.action_space == theirs.action_space
        assert ours.single_action_space == theirs.single_action_space
        assert ours.metadata == theirs.metadata
        theirs.action_space.seed(7)
        ours.reset_async(seed=7)
        results = [(ours.reset_wait(), theirs.reset(seed=7))]
        for k in range(STEPS):
            actions = theirs.action_space.sample()
            if k % 2:
                ours.step_async(actions)
            mine = ours.step_wait() if k % 2 else ours.step(actions)
            results.append((mine, theirs.step(actions)))
            if k > 100 and (mine[2] | mine[3]).any():  # by themselves, some reset in the next step
                results.append((ours.reset(), theirs.reset()))
        for mine, other in results:  # at the end, as no result changes
            assert_same(mine, other)
        assert sum((other[2] | other[3]).sum() for _, other in results if len(other) > 2)


@pytest.mark.parametrize("backend", OF_ENVS)
def test_a_mask_resets_some(backend: str) -> None:
    with both([lake] * 5, backend, AutoresetMode.DISABLED) as (ours, theirs):
        assert_same(ours.reset(seed=3), theirs.reset(seed=3))
        theirs.action_space.seed(3)
        some = 0
        for _ in range(STEPS):
            actions = theirs.action_space.sample()
            result = theirs.step(actions)
            assert_same(ours.step(actions), result)
            done = result[2] | result[3]
            if done.any():
                some += not done.all()
                masks = [{"reset_mask": done.copy()} for _ in range(2)]
                assert_same(ours.reset(options=masks[0]), theirs.reset(options=masks[1]))
                assert "reset_mask" in masks[0], "the caller's own dict stays as it was"
        assert some


def test_seeds_and_generators_are_gymnasiums() -> None:
    with both([short_cartpole] * 3, "process") as (ours, theirs):
        for envs in (theirs, ours):
            envs.reset(seed=[5, 9, 2])
        assert ours.np_random_seed == theirs.np_random_seed == (5, 9, 2)
        for mine, other in zip(ours.np_random, theirs.np_random, strict=True):
            assert mine.bit_generator.state == other.bit_generator.state
