"""TextArena's games in agym, and agym's environments in TextArena, with its release."""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

import pytest
import textarena

import agym
from tests.support.envs.text_envs import Guess

adapter = agym.adapters.textarena


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_games_are_those_of_textarena_whatever_runs_beside(backend: str) -> None:
    moves = ["[up]", "[left]", "[down]", "[right]", "[up]"]

    def played_alone(seed: int) -> list[Any]:
        game = textarena.make("2048-v0")
        game.reset(num_players=1, seed=seed)
        played = [game.get_observation()[1]]
        for move in moves:
            assert game.step(move)[0] is False
            played.append(game.get_observation()[1])
        return played

    expected = [played_alone(seed) for seed in (3, 4, 5)]
    with agym.make(adapter.factory("2048-v0"), 3, backend=backend) as envs:
        played = [envs.reset(seed=3).observations]
        played += [envs.step([move] * 3).observations for move in moves]
    assert [list(each) for each in zip(*played, strict=True)] == expected


def test_the_reward_is_that_of_the_game() -> None:
    game = adapter.factory("GuessTheNumber-v0", max_number=3, max_turns=1)
    with agym.make(game, 2) as envs:
        envs.reset(seed=[1, 1])
        random.seed(1)
        number = random.randint(1, 3)
        wrong = [n for n in range(1, 4) if n != number]
        step = envs.step([f"[{number}]", f"[{wrong[0]}]"])
        assert (step.rewards, step.terminated) == ([1.0, 0.0], [True, False])
        assert step.infos[0]["rewards"] == [1.0]
        assert "correct" in step.infos[0]["game"]["reason"]
        step = envs.step([f"[{wrong[1]}]"], env_ids=[1])
        assert (step.terminated, step.truncated) == ([True], [False])
        assert "turn limit" in step.infos[0]["game"]["reason"]


def first_free(player: int, observation: str) -> str:
    return re.findall(r"\[\d+\]", observation.rpartition("Available Moves:")[2])[0]


async def first_free_later(player: int, observation: str) -> str:
    await asyncio.sleep(0)
    return first_free(player, observation)


@pytest.mark.parametrize("opponent", [first_free, first_free_later])
@pytest.mark.parametrize("backend", ["auto", "process"])
def test_other_seats_are_played_by_a_function(opponent: Any, backend: str) -> None:
    first = adapter.factory("TicTacToe-v0", opponent=opponent)
    with agym.make(first, 2, backend=backend) as envs:
        observations, _ = envs.reset(seed=0)
        assert "You are Player 0" in observations[0]
        envs.step(["[4]"] * 2)  # and 0
        envs.step(["[2]"] * 2)  # and 1
        step = envs.step(["[6]"] * 2)
        assert (step.rewards, step.terminated) == ([1.0, 1.0], [True, True])
        assert step.infos[0]["rewards"] == [1.0, -1.0]
    second = adapter.factory("TicTacToe-v0", opponent=opponent, seat=1)
    with agym.make(second, backend=backend) as envs:
        (observation,), _ = envs.reset(seed=0)
        assert "You are Player 1" in observation
        assert "[Player 0]" in observation  # has moved already
        envs.step(["[8]"])
        step = envs.step(["[7]"])  # and the other wins
        assert (step.rewards, step.terminated) == ([-1.0], [True])
        assert "Player 0 placed their symbol (O) in cell 2" in step.observations[0]


def test_three_players() -> None:
    game = adapter.factory("ThreePlayerTicTacToe-v0", players=3, seat=1, opponent=first_free)
    with agym.make(game, 2) as envs:
        envs.reset(seed=[5, 6])
        for _ in range(30):
            free = [first_free(1, observation) for observation in envs.reset(seed=[5, 6])[0]]
            step = envs.step(free)
            assert all(over or reward == 0.0 for over, reward in zip(*step[2:0:-1], strict=True))


async def test_waiting_opponents_wait_at_once() -> None:
    here = asyncio.Barrier(8)

    async def together(player: int, observation: str) -> str:
        await here.wait()
        return first_free(player, observation)

    game = adapter.factory("TicTacToe-v0", opponent=together)
    async with agym.make_async(game, 8, output="list") as envs:
        await envs.reset()
        await envs.step(["[4]"] * 8)


def test_an_opponent_that_raises_is_a_fault_of_its_game() -> None:
    def broken(player: int, observation: str) -> str:
        raise RuntimeError("resigned")

    with agym.make(adapter.factory("TicTacToe-v0", opponent=broken)) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError, match="resigned"):
            envs.step(["[4]"])


def test_an_environment_of_agym_is_a_game_of_textarena() -> None:
    adapter.register("agym-Guess-v0", Guess, most=9, turns=2)
    game = textarena.make("agym-Guess-v0")
    game.reset(num_players=1, seed=4)
    player, observation = game.get_observation()
    assert player == 0
    assert "guess a number up to 9" in observation
    done, _ = game.step("0")
    assert not done
    assert "higher" in game.get_observation()[1]
    done, info = game.step("0")
    assert done
    assert info["left"] == 0
    rewards, told = game.close()
    assert rewards == {0: 0.0}
    assert told[0]["reason"] == "truncated"
    with pytest.raises(agym.UsageError, match="one player"):
        game.reset(num_players=2)
    with pytest.raises(agym.UsageError, match="already"):
        adapter.register("agym-Guess-v0", Guess)
    game.quit()
