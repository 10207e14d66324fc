"""Both games as Gymnasium's environments, and through agym."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.play import play
from gymnasium.vector import AutoresetMode

import agym
from agym.envs.pong.rendering import COLORS, SCALE
from agym.envs.pong.rules import BALL, EMPTY, HEIGHT, PADDLE, WIDTH
from agym.envs.pong.vector import ENGINES, ManyGames, PongVectorEnv
from agym.hosts.factories import find_spec
from agym.hosts.vector.construction import VectorFactory
from tests.envs.same_games import GAMES
from tests.support.equality import same

# Each process compiles the games anew.
pytestmark = pytest.mark.xdist_group("compiled")

IDS = ("agym/Pong-v0", "agym/PongRally-v0")

each_id = pytest.mark.parametrize("env_id", IDS)


@each_id
@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
def test_gymnasiums_checker_is_content(env_id: str, render_mode: str | None) -> None:
    """Its warnings are errors here."""
    env = gymnasium.make(env_id, render_mode=render_mode)
    check_env(env.unwrapped)
    assert env.spec is not None
    assert env.spec.id == env_id


@each_id
def test_seeds_decide_everything(env_id: str) -> None:
    def played(seed: int) -> Any:
        env = gymnasium.make(env_id)
        env.action_space.seed(1)
        seen = [env.reset(seed=seed)[0]]
        for _ in range(200):
            observation, reward, terminated, _, _ = env.step(env.action_space.sample())
            seen += [observation, np.float64(reward)]
            if terminated:
                seen.append(env.reset()[0])
        return seen

    assert same(played(5), played(5))
    assert not same(played(5), played(6))


@pytest.mark.once
@each_id
@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("workers", [1, 2])
def test_native_gives_what_serial_gives(env_id: str, autoreset: str, workers: int) -> None:
    keywords: dict[str, Any] = {"autoreset": autoreset, "output": "array"}
    if env_id == IDS[0]:
        keywords["points"] = 1
    ended = 0
    with (
        agym.make(env_id, 5, backend="serial", **keywords) as theirs,
        agym.make(env_id, 5, backend="native", workers=workers, **keywords) as ours,
    ):
        assert same(ours.reset(seed=3), theirs.reset(seed=3))
        ours.action_space.seed(0)
        for k in range(150):
            actions = ours.action_space.sample()
            mine, other = ours.step(actions), theirs.step(actions)
            assert same(mine[:4], other[:4])
            assert same([*mine.infos], [*other.infos])
            ended += int(mine.terminated.sum())
            if k == 100:
                some = {"seed": [8, 2], "env_ids": [1, 4]} if autoreset != "next_step" else {}
                assert same(ours.reset(**some)[:1], theirs.reset(**some)[:1])
    assert ended > 5


def test_options_by_id() -> None:
    envs = gymnasium.make_vec(IDS[0], 2, points=1, skill=0.0, engine="numpy", max_episode_steps=9)
    envs.reset(seed=0)
    for k in range(9):
        *_, truncated, _ = envs.step(np.zeros(2, np.int64))
        assert truncated.tolist() == [k == 8] * 2
    envs.close()
    env = gymnasium.make(IDS[0], points=3, skill=0.0)
    env.reset(seed=0)
    total, over, steps = 0.0, False, 0
    while not over:
        _, reward, over, _, _ = env.step(0)
        total += float(reward)
        steps += 1
    assert -3 <= total <= 3
    assert steps > 3 * 17


def test_results_are_the_callers() -> None:
    envs = PongVectorEnv(3)
    kept = [envs.reset(seed=0)[0]]
    copies = [kept[0].copy()]
    for _ in range(10):
        result = envs.step(np.ones(3, np.int64))
        kept += result[:4]
        copies += [part.copy() for part in result[:4]]
    assert same(kept, copies)
    kept[-4][:] = 9
    assert envs.step(np.ones(3, np.int64))[0].max() == BALL


@pytest.mark.full
def test_views_are_overwritten() -> None:
    envs = PongVectorEnv(3, copy=False)
    first = envs.reset(seed=0)[0]
    before = first.copy()
    second = envs.step(np.ones(3, np.int64))[0]
    assert np.shares_memory(first, second)
    assert not same(first, before)


@pytest.mark.parametrize("name", GAMES)
def test_pictures(name: str) -> None:
    text = GAMES[name](2, render_mode="ansi")
    text.reset(seed=1)
    for drawn in text.render():
        lines = drawn.split("\n")
        assert len(lines) == HEIGHT + 2
        assert {len(line) for line in lines} == {WIDTH}
        assert (drawn.count("#"), drawn.count("o")) == (10, 1)
    pixels = GAMES[name](2, render_mode="rgb_array")
    grids, _ = pixels.reset(seed=1)
    for grid, frame in zip(grids, pixels.render(), strict=True):
        assert frame.shape == (HEIGHT * SCALE, WIDTH * SCALE, 3)
        assert frame.dtype == np.uint8
        for cell in (EMPTY, PADDLE, BALL):
            assert (frame == COLORS[cell]).all(-1).sum() == (grid == cell).sum() * SCALE**2
    assert GAMES[name](2).render() is None


KEYS = {
    "Pong": [([], 0), (["w"], 1), (["s"], 2), (["UP"], 1), (["DOWN"], 2)],
    "PongRally": [
        ([], [0, 0]), (["w"], [1, 0]), (["DOWN"], [0, 2]), (["s", "UP"], [2, 1]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", GAMES)
def test_keyboard(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds some keys for a step each, and then closes the window."""
    pygame = pytest.importorskip("pygame")
    env = gymnasium.make(f"agym/{name}-v0", render_mode="rgb_array")
    held: list[Any] = []
    batches = []
    for keys, _ in [*KEYS[name], KEYS[name][0]]:
        codes = [getattr(pygame, f"K_{key}") for key in keys]
        batches.append(
            [pygame.event.Event(pygame.KEYUP, key=code) for code in held]
            + [pygame.event.Event(pygame.KEYDOWN, key=code) for code in codes]
        )
        held = codes
    events = iter([*batches, [pygame.event.Event(pygame.QUIT)]])
    monkeypatch.setattr("pygame.event.get", lambda: next(events))
    played: list[Any] = []
    noop = np.array([0, 0]) if name == "PongRally" else 0
    play(
        env, fps=1000, seed=1, noop=noop,
        callback=lambda *step: played.append(np.asarray(step[2]).tolist()),
    )  # fmt: skip
    assert played[: len(KEYS[name])] == [action for _, action in KEYS[name]]
    env.close()


@pytest.mark.parametrize(
    ("keywords", "word"),
    [
        ({"points": 0}, "points"), ({"points": 1.5}, "points"), ({"skill": 1.1}, "skill"),
        ({"engine": "magic"}, "engine"), ({"render_mode": "human"}, "render_mode"),
        ({"num_envs": 0}, "num_envs"), ({"max_episode_steps": 0}, "max_episode_steps"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_work(keywords: dict[str, Any], word: str) -> None:
    with pytest.raises(agym.UsageError, match=word):
        PongVectorEnv(**{"num_envs": 2, **keywords})


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "cuda"])
def test_calls_that_cannot_work(engine: str) -> None:
    envs: ManyGames = PongVectorEnv(2, engine=engine, autoreset_mode=AutoresetMode.DISABLED,
                                    max_episode_steps=2)  # fmt: skip
    with pytest.raises(ResetNeeded, match="reset"):
        envs.step(np.array([0, 1]))
    before, _ = envs.reset(seed=1)
    for actions in ([0, 3], [-1, 0], [0], [[0, 1]], [0.0, 1.0], [True, False], None):
        with pytest.raises(agym.UsageError, match="actions"):
            envs.step(actions)
    for seed in ([1], -1, [1, -2]):
        with pytest.raises(agym.UsageError, match="seed"):
            envs.reset(seed=seed)
    for mask in ([True], [1, 0], [False, False]):
        with pytest.raises(agym.UsageError, match="reset_mask"):
            envs.reset(options={"reset_mask": np.array(mask)})
    assert same(envs.reset(seed=1)[0], before)
    for kind in (np.int8, np.uint8, np.int32, np.uint64):
        envs.reset(seed=1)
        envs.step(np.array([0, 2], kind))
    envs.step([0, 2])
    with pytest.raises(ResetNeeded, match="reset_mask"):
        envs.step([0, 2])
    envs.close()


@each_id
def test_actions_that_are_none(env_id: str) -> None:
    env = gymnasium.make(env_id, disable_env_checker=True)
    env.reset(seed=0)
    for action in (3, -1, [0, 3], [0, 1, 2], "up"):
        with pytest.raises(agym.UsageError, match="action"):
            env.step(action)


def test_a_card_is_needed_for_a_card() -> None:
    cuda = pytest.importorskip("numba.cuda")
    if cuda.is_available():
        envs = PongVectorEnv(2, engine="cuda")
        assert envs.reset(seed=0)[0].shape == (2, HEIGHT, WIDTH)
        envs.close()
    else:
        with pytest.raises(agym.UsageError, match="card"):
            PongVectorEnv(2, engine="cuda")


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agym.envs.pong.vector.installed", lambda module: False)
    envs = PongVectorEnv(2)
    assert type(envs._games) is ENGINES["numpy"]


@each_id
def test_agym_copies_once(env_id: str) -> None:
    """Its native backend takes views, since it copies what it gets into memory of its own."""
    for keywords, copy in (({}, False), ({"copy": True}, True)):
        envs = VectorFactory(find_spec(env_id), keywords)(num_envs=2)
        assert envs.unwrapped.copy is copy
    with agym.make(env_id, 2, backend="native", output="array") as ours:
        first = ours.reset(seed=0).observations
        kept = first.copy()
        ours.step(ours.action_space.sample())
        assert same(first, kept)


@pytest.mark.parametrize("env_id", IDS)
def test_worker_processes_know_the_ids(env_id: str) -> None:
    with agym.make(env_id, 2, backend="process", workers=1) as envs:
        observations, _ = envs.reset(seed=0)
        assert [observation.shape for observation in observations] == [(HEIGHT, WIDTH)] * 2
