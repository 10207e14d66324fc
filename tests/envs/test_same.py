"""However a batch is played, it is the same game, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from agym.envs.pong.compiled import NEAR_GAMES
from agym.envs.pong.single import PongEnv, PongRallyEnv
from tests.envs.same_games import GAMES, actions_of, play_same, side_by_side
from tests.support.core_selection import examples
from tests.support.equality import same
from tests.support.patience import patience

ENGINES = ("numpy", "compiled", "parallel")

each_game = pytest.mark.parametrize("name", GAMES)
each_mode = pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name.lower())


@each_game
@each_mode
def test_thousands_of_points(name: str, mode: AutoresetMode) -> None:
    envs = side_by_side(name, ENGINES, 64, mode, **({"points": 3} if name == "Pong" else {}))
    points, ended = play_same(envs, 11, actions_of(name, 64, 250, 1))
    assert points > 350
    assert ended > 80


@each_game
@each_mode
@examples(8)
@given(st.data())
def test_any_seeds_actions_and_resets(name: str, mode: AutoresetMode, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 5))
    keywords: dict[str, Any] = {"max_episode_steps": data.draw(st.none() | st.integers(1, 40))}
    if name == "Pong":
        keywords["points"] = data.draw(st.integers(1, 3))
        keywords["skill"] = data.draw(st.floats(0, 1))
    several = st.lists(st.integers(0, 2**40), min_size=n, max_size=n)
    seed = data.draw(st.integers(0, 2**70) | several)
    shape = (60, n) if name == "Pong" else (60, n, 2)
    drawn = data.draw(st.binary(min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    batches = np.frombuffer(drawn, np.uint8).reshape(shape) % 3
    play_same(
        side_by_side(name, ENGINES, n, mode, **keywords), seed, batches,
        resets=data.draw(st.integers(0, 30)),
    )  # fmt: skip


@pytest.mark.full
@each_game
def test_blocks_and_shares(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agym.envs.pong.vectorised.BLOCK", 7)
    monkeypatch.setattr("agym.envs.pong.compiled.SHARE", 7)
    envs = side_by_side(name, ENGINES, 23, AutoresetMode.SAME_STEP)
    points, _ = play_same(envs, 5, actions_of(name, 23, 100, 2), resets=20)
    assert points > 40


@pytest.mark.full
@each_game
def test_more_games_than_are_near(name: str) -> None:
    """Those whose cells are fetched ahead."""
    n = NEAR_GAMES + 20
    envs = side_by_side(name, ENGINES, n, AutoresetMode.NEXT_STEP)
    points, _ = play_same(envs, 6, actions_of(name, n, 30, 4))
    assert points > n // 4


@pytest.mark.full
def test_on_a_graphics_card() -> None:
    """Numba's simulator of one, which has to be chosen before numba is imported."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.envs.on_card"],
        capture_output=True, text=True, timeout=patience(10),
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 6


@each_game
@pytest.mark.parametrize("engine", ["scalar", "compiled"])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_batch_is_what_gymnasium_makes_of_single_games(
    name: str, engine: str, mode: AutoresetMode
) -> None:
    single, keywords = (PongEnv, {"points": 2}) if name == "Pong" else (PongRallyEnv, {})
    theirs = SyncVectorEnv([lambda: single(**keywords)] * 4, autoreset_mode=mode)  # type: ignore[arg-type]
    ours = GAMES[name](4, engine=engine, autoreset_mode=mode, **keywords)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.action_space == theirs.action_space
    assert isinstance(ours.single_action_space, spaces.Space)
    finals = 0
    assert same(ours.reset(seed=9), theirs.reset(seed=9))
    for actions in actions_of(name, 4, 300, 6):
        mine, other = ours.step(actions), theirs.step(actions)
        assert same(list(mine[:4]), list(other[:4]))
        assert mine[4].keys() == other[4].keys()
        for i in np.flatnonzero(other[4].get("_final_obs", [])):
            finals += 1
            assert same(mine[4]["final_obs"][i], other[4]["final_obs"][i])
            assert mine[4]["_final_obs"].tolist() == other[4]["_final_obs"].tolist()
    assert finals > 8 or mode is AutoresetMode.NEXT_STEP
    theirs.close()
