"""Whatever engine plays a batch, and however large it is, each game is the same, bit for bit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

import agym
from tests.rules.books import BOOKS, Everything, Steps
from tests.rules.playing import play_same, records, side_by_side
from tests.support.core_selection import examples
from tests.support.equality import same

# A process compiles the rules of a book once.
pytestmark = pytest.mark.xdist_group("compiled")

ENGINES = ("compiled", "parallel")

each_book = pytest.mark.parametrize("rules", BOOKS.values(), ids=BOOKS)
each_mode = pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name.lower())
each_engine = pytest.mark.parametrize("engine", ["python", *ENGINES])


@pytest.fixture(autouse=True)
def divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few games suffice for every core to have some."""
    monkeypatch.setattr("agym.rules.engines.SHARE", 2)


@each_book
@each_mode
@examples(10)
@given(st.data())
def test_any_seeds_and_resets(rules: Any, mode: AutoresetMode, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    limit = data.draw(st.none() | st.integers(1, 30))
    seed = data.draw(
        st.none().map(lambda _: 3)
        | st.integers(0, 2**70)
        | st.lists(st.integers(0, 2**40), min_size=n, max_size=n)
    )
    envs = side_by_side(rules, ENGINES, n, mode, max_episode_steps=limit)
    last, _ = play_same(envs, seed, 40, resets=data.draw(st.integers(0, 20)))
    assert last[1].dtype == np.float64


@pytest.mark.parametrize("engine", ENGINES)
def test_parameters_of_each_game(engine: str) -> None:
    options = {
        "goal": np.array([1, 200, 30, 4, 75]), "speed": np.linspace(0.0, 2.0, 5),
        "weights": np.arange(10.0).reshape(5, 2),
    }  # fmt: skip
    envs = side_by_side(Everything, [engine], 5, AutoresetMode.SAME_STEP, **options)
    _, ended = play_same(envs, 8, 60, resets=20)
    assert ended > 5


# ---------------------------------------------------------------- a game and its neighbours


def game_of(rules: Any, engine: str, seeds: list[int], which: int, actions: Any) -> Any:
    """Return all that one of some games gives, which all get the same actions."""
    envs = agym.vectorize(rules, len(seeds), engine=engine, max_episode_steps=20)
    seen: list[Any] = [envs.reset(seed=seeds)[0][which]]
    for action in actions:
        batch = np.stack([action] * len(seeds))
        *parts, info = envs.step(batch)
        seen += [part[which] for part in parts]
        seen.append({key: value[which] for key, value in info.items()})
    seen.append([field[which] for field in records(envs)])
    envs.close()
    return seen


@each_book
@each_engine
def test_a_seed_alone_decides_a_game(rules: Any, engine: str) -> None:
    space = rules.action_space
    space.seed(3)
    actions = [space.sample() for _ in range(50)]
    alone = game_of(rules, engine, [11], 0, actions)
    assert same(game_of(rules, engine, [3, 1, 4, 1, 5, 11, 9], 5, actions), alone)
    assert same(game_of(rules, engine, [11, 11, 0], 1, actions), alone)


def test_seeds_of_all_games_differ() -> None:
    ours, theirs = (agym.vectorize(Everything, 4, engine="python") for _ in range(2))
    assert same(ours.reset(seed=7), theirs.reset(seed=[7, 8, 9, 10]))
    fresh = (agym.vectorize(Everything, 4, engine="python") for _ in range(2))
    batches = [ours.reset(seed=7)[0], *(envs.reset()[0] for envs in fresh)]
    assert len({row.tobytes() for batch in batches for row in batch}) == 12


@each_engine
def test_a_game_without_a_new_seed_goes_on_with_its_numbers(engine: str) -> None:
    envs = agym.vectorize(Everything, 3, engine=engine)
    envs.reset(seed=[4, 5, 6])
    later = envs.reset(seed=[None, 5, None])[0]
    expected = agym.vectorize(Everything, 3, engine="python")
    first = expected.reset(seed=[4, 5, 6])[0]
    second = expected.reset()[0]
    assert same(later[[0, 2]], second[[0, 2]])
    assert same(later[1], first[1])
    envs.close()


@each_engine
def test_a_masked_reset_leaves_the_others_where_they_are(engine: str) -> None:
    envs = agym.vectorize(Everything, 3, engine=engine)
    envs.reset(seed=1)
    before = envs.step(envs.action_space.sample())[0]
    after = envs.reset(options={"reset_mask": np.array([False, True, False])})[0]
    assert same(after[[0, 2]], before[[0, 2]])
    assert not same(after[1], before[1])
    envs.close()


# ---------------------------------------------------------------- as Gymnasium does it


@each_book
@each_engine
@pytest.mark.parametrize(
    "mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=["next_step", "same_step"]
)
def test_a_batch_is_what_gymnasium_makes_of_single_games(
    rules: Any, engine: str, mode: AutoresetMode
) -> None:
    theirs = SyncVectorEnv(
        [lambda: agym.vectorize(rules, max_episode_steps=18)] * 4, autoreset_mode=mode
    )
    ours = agym.vectorize(rules, 4, engine=engine, autoreset_mode=mode, max_episode_steps=18)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    ours.action_space.seed(2)
    ended = 0
    (mine, info), (other, their_info) = ours.reset(seed=9), theirs.reset(seed=9)
    assert same(mine, other)
    assert listed(info) == listed(their_info)
    for _ in range(80):
        actions = ours.action_space.sample()
        *mine, info = ours.step(actions)
        *other, their_info = theirs.step(actions)
        ended += int((mine[2] | mine[3]).sum())
        assert same(mine, other)
        assert listed(info) == listed(their_info)
    assert ended > 8
    ours.close()
    theirs.close()


def listed(info: Any) -> Any:
    """Return an info as nested lists; Gymnasium's columns have other dtypes."""
    if isinstance(info, dict):
        return {key: listed(value) for key, value in info.items()}
    if isinstance(info, np.ndarray):
        return [listed(one) for one in info] if info.dtype == object else info.tolist()
    return info


# ---------------------------------------------------------------- whose the results are


@each_engine
def test_results_are_the_callers(engine: str) -> None:
    envs = agym.vectorize(Everything, 3, engine=engine)
    kept = [envs.reset(seed=0)[0]]
    copies = [kept[0].copy()]
    for _ in range(10):
        result = envs.step(envs.action_space.sample())
        kept += [*result[:4], result[4]["board"]]
        copies += [part.copy() for part in kept[-5:]]
    assert same(kept, copies)
    envs.close()


@each_engine
def test_views_are_overwritten(engine: str) -> None:
    envs = agym.vectorize(Everything, 3, engine=engine, copy=False)
    first = envs.reset(seed=0)[0]
    before = first.copy()
    second = envs.step(envs.action_space.sample())[0]
    assert np.shares_memory(first, second)
    assert not same(first, before)
    envs.close()


@each_engine
def test_states_can_be_read_and_changed(engine: str) -> None:
    envs = agym.vectorize(Steps, 2, engine=engine)
    envs.reset(seed=0)
    envs.states["place"] = [10, -10]
    observations, _, terminated, *_ = envs.step([1, -1])
    assert (abs(observations) >= 9).all()
    assert terminated.tolist() == [True, True]
    envs.close()


def test_one_game_in_any_engine() -> None:
    seen = []
    for engine in ("python", *ENGINES):
        env = agym.vectorize(Everything, engine=engine)
        env.action_space.seed(5)
        steps: list[Any] = [env.reset(seed=6)]
        steps += [env.step(env.action_space.sample()) for _ in range(4)]
        kinds = [type(steps[-1][1]), type(steps[-1][2]), type(steps[-1][4]["wide"])]
        assert kinds == [float, bool, int]
        seen.append(steps)
        env.close()
    assert same(seen[1:], seen[:1] * 2)


@each_mode
@pytest.mark.parametrize("taken", AutoresetMode, ids=lambda mode: mode.name.lower())
@each_engine
def test_a_game_that_is_over_is_reset_as_the_mode_says(
    engine: str, taken: AutoresetMode, mode: AutoresetMode
) -> None:
    """Whichever mode its state was taken under."""
    options: dict[str, Any] = {"engine": engine, "max_episode_steps": 4}
    over = agym.vectorize(Steps, 3, autoreset_mode=taken, **options)
    over.reset(seed=1)
    for _ in range(4):
        rows = over.step(np.zeros(3, np.int64))
    assert rows[3].all()
    envs = agym.vectorize(Steps, 3, autoreset_mode=mode, **options)
    envs.reset(seed=2)
    envs.step(np.zeros(3, np.int64))
    envs.set_state(1, over.get_state(1))
    if mode is AutoresetMode.DISABLED and taken is not AutoresetMode.SAME_STEP:
        with pytest.raises(gymnasium.error.ResetNeeded, match="reset_mask"):
            envs.step(np.zeros(3, np.int64))
        envs.reset(options={"reset_mask": np.array([False, True, False])})
    ends = [envs.step(np.zeros(3, np.int64))[3].tolist() for _ in range(3)]
    assert ends == [[False] * 3, [False] * 3, [True, False, True]]
