"""Toy texts: the same outcomes, rewards, probabilities, infos and pictures as Gymnasium's."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium
import numpy as np
import pytest

from agym.envs.toy_text.cliff_walking import CliffWalking
from agym.envs.toy_text.frozen_lake import FrozenLake, FrozenLake8x8, frozen_lake
from agym.envs.toy_text.taxi import Taxi
from agym.rules.records import Record, Table
from tests.rules.playing import blank, rng_of

IDS: dict[Any, str] = {
    FrozenLake: "FrozenLake-v1",
    FrozenLake8x8: "FrozenLake8x8-v1",
    CliffWalking: "CliffWalking-v1",
    Taxi: "Taxi-v4",
}
ROWS = ["SFHF", "FFFS", "HFFG"]
POND = frozen_lake(ROWS, name="Pond", max_episode_steps=7)

PARAMETERS: list[tuple[Any, dict[str, Any]]] = [
    (FrozenLake, {"is_slippery": False}),
    (FrozenLake, {}),
    (FrozenLake, {"success_rate": 0.75, "reward_schedule": (10, -5, -1)}),
    (FrozenLake8x8, {}),
    (POND, {}),
    (CliffWalking, {}),
    (CliffWalking, {"is_slippery": True}),
    (Taxi, {}),
    (Taxi, {"is_rainy": True}),
    (Taxi, {"is_rainy": True, "rainy_probability": 0.5}),
]

by_rules = pytest.mark.parametrize("rules", IDS, ids=lambda rules: rules.__name__)
by_parameters = pytest.mark.parametrize(("rules", "parameters"), PARAMETERS)


class Loaded:
    """Random numbers that lead to the k-th of several outcomes."""

    def __init__(self, probabilities: list[float], k: int) -> None:
        self.middle = sum(probabilities[:k]) + probabilities[k] / 2
        self.k = k

    def random(self) -> float:
        return self.middle

    def integers(self, low: int, high: int) -> int:
        return low + self.k


def gymnasiums(rules: Any, **arguments: Any) -> Any:
    if rules is POND:
        arguments["desc"] = ROWS
    env_id = IDS.get(rules, "FrozenLake-v1")
    return gymnasium.make(env_id, **arguments, disable_env_checker=True).unwrapped


def put(rules: Any, record: Record, observation: int, **others: Any) -> None:
    """Set a game to the state that has an observation."""
    place = observation
    if rules is Taxi:
        place, record.destination = divmod(place, 4)
        place, record.passenger = divmod(place, 5)
    record.row, record.column = divmod(place, columns(rules))
    for name, value in others.items():
        setattr(record, name, value)


def columns(rules: Any) -> int:
    return {CliffWalking: 12, Taxi: 5, POND: 4}.get(rules) or round(rules.observation_space.n**0.5)


def observed(rules: Any, record: Record) -> int:
    out = np.full(1, -1, np.int64)
    rules.observe(record, out)
    return int(out[0])


def info_of(rules: Any, record: Record) -> dict[str, Any]:
    out = Table(np.full(1, -1, rules.info_dtype))
    rules.info(record, out[0])
    return {name: out.array[name][0] for name in rules.info_dtype.names}


@by_parameters
def test_every_outcome_is_gymnasiums(rules: Any, parameters: dict[str, Any]) -> None:
    """All states, actions and outcomes, in Gymnasium's order."""
    table, record = gymnasiums(rules, **parameters).P, blank(rules, **parameters)
    for state, by_action in table.items():
        for action, outcomes in by_action.items():
            chances = [outcome[0] for outcome in outcomes]
            for k, (probability, after, reward, terminated) in enumerate(outcomes):
                put(rules, record, state)
                result = rules.step(record, action, Loaded(chances, k))
                assert result == (reward, terminated), (state, action, k)
                assert observed(rules, record) == after, (state, action, k)
                assert info_of(rules, record)["prob"] == probability, (state, action, k)


@by_parameters
def test_outcomes_are_as_frequent_as_they_should_be(rules: Any, parameters: dict[str, Any]) -> None:
    table, record = gymnasiums(rules, **parameters).P, blank(rules, **parameters)
    rng, count = rng_of(0), 4000
    state, action = {FrozenLake: 14, POND: 5}.get(rules, 24), 1
    wanted: Counter[int] = Counter()
    for probability, after, *_ in table[state][action]:
        wanted[int(after)] += probability
    seen: Counter[int] = Counter()
    for _ in range(count):
        put(rules, record, state)
        rules.step(record, action, rng)
        seen[observed(rules, record)] += 1
    assert seen.keys() == wanted.keys()
    for after, probability in wanted.items():
        assert seen[after] / count == pytest.approx(probability, abs=0.03)


@pytest.mark.parametrize("rules", [*IDS, POND])
def test_where_episodes_begin(rules: Any) -> None:
    env, record, rng, seen = gymnasiums(rules), blank(rules), rng_of(0), set()
    distribution = env.initial_state_distrib
    for _ in range(1 if distribution.max() == 1 else 4000):
        rules.reset(record, rng)
        seen.add(observed(rules, record))
    assert seen == {*np.flatnonzero(distribution)}
    ours, theirs = info_of(rules, record), env.reset()[1]
    assert ours.keys() == theirs.keys()
    assert ours["prob"] == theirs["prob"]


def test_which_actions_of_a_taxi_change_anything() -> None:
    env, record = gymnasiums(Taxi), blank(Taxi)
    for state in range(env.observation_space.n):
        put(Taxi, record, state)
        np.testing.assert_array_equal(info_of(Taxi, record)["action_mask"], env.action_mask(state))


@pytest.mark.parametrize("is_rainy", [False, True])
def test_a_fickle_passenger_changes_their_mind_once(is_rainy: bool) -> None:
    record, rng = blank(Taxi, fickle_passenger=True, is_rainy=is_rainy), rng_of(0)
    destinations = set()
    for state in range(500):
        for action in range(6):
            put(Taxi, record, state, changes_mind=True)
            Taxi.step(record, action, rng)
            after = observed(Taxi, record)
            changes = state // 4 % 5 == 4 and after // 20 != state // 20  # rides, and moved
            assert record.changes_mind != changes
            assert (after % 4 != state % 4) == changes
            if changes and state % 4 == 2:
                destinations.add(after % 4)
    assert destinations == {0, 1, 3}


def test_how_often_a_passenger_is_fickle() -> None:
    rng = rng_of(0)
    for parameters, share in (
        ({}, 0.0),
        ({"fickle_passenger": True}, 0.3),
        ({"fickle_passenger": True, "fickle_probability": 1.0}, 1.0),
    ):
        record, count = blank(Taxi, **parameters), 0
        for _ in range(1000):
            Taxi.reset(record, rng)
            count += record.changes_mind
        assert count / 1000 == pytest.approx(share, abs=0.05)


def test_a_lake_has_a_name_and_a_space_of_its_own() -> None:
    assert POND.__name__ == "Pond"
    assert POND.observation_space == gymnasiums(POND).observation_space
    assert POND.max_episode_steps == 7


@pytest.mark.parametrize("rows", [[], ["SF", "F"], ["SX"], ["FF"]])
def test_what_is_no_lake(rows: list[str]) -> None:
    with pytest.raises(ValueError, match="the"):
        frozen_lake(rows)


def test_probabilities_are_checked() -> None:
    with pytest.raises(ValueError, match="success_rate"):
        FrozenLake.check(is_slippery=True, success_rate=1.5)
    with pytest.raises(ValueError, match="rainy_probability=-1"):
        Taxi.check(rainy_probability=-1, fickle_probability=0)
    FrozenLake.check(**FrozenLake.parameters)
    Taxi.check(**Taxi.parameters)


@by_rules
@pytest.mark.parametrize("mode", ["rgb_array", "ansi"])
def test_pictures_are_gymnasiums(rules: Any, mode: str) -> None:
    if mode == "rgb_array":
        pytest.importorskip("pygame")
    parameters = {"is_slippery": False} if rules in (FrozenLake, FrozenLake8x8) else {}
    env, record = gymnasiums(rules, render_mode=mode, **parameters), blank(rules, **parameters)
    env.action_space.seed(1)
    observation, _ = env.reset(seed=1)
    rules.reset(record, rng_of(0))
    put(rules, record, observation)
    for _ in range(8):
        np.testing.assert_array_equal(rules.render(record, mode), env.render())
        action = env.action_space.sample()
        terminated = env.step(action)[2]
        rules.step(record, int(action), None)
        if terminated:
            break
    np.testing.assert_array_equal(rules.render(record, mode), env.render())
    env.close()
