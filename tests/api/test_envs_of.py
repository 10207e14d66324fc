"""Tools find environments under wrappers, and follow them by the tap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import TimeLimit
from gymnasium.wrappers.vector import NormalizeReward, RecordEpisodeStatistics

import agym
from tests.support.backends import FORK
from tests.support.envs.plain_envs import Tally


def gymnasium_wrapped() -> Any:
    envs = agym.make_vec("CartPole-v1", 2, render_mode="rgb_array")
    return NormalizeReward(RecordEpisodeStatistics(envs))


def sb3_wrapped() -> Any:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    keywords = {"render_mode": "rgb_array"}
    return vec_env.VecNormalize(agym.sb3.make_vec_env("CartPole-v1", 2, env_kwargs=keywords))


@pytest.mark.parametrize("make", [gymnasium_wrapped, sb3_wrapped])
def test_tools_take_wrapped_environments(make: Callable[[], Any], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    envs = make()
    found = agym.envs_of(envs)
    assert isinstance(found, agym.Envs)
    assert found is agym.envs_of(found)
    envs.reset()
    with (
        agym.chaos(envs, delay=1.0, delay_seconds=0.0) as chaos,
        agym.record(envs, tmp_path / "run.gif") as recording,
        agym.watch(envs) as page,
        agym.tensorboard(envs, tmp_path / "log") as log,
    ):
        for _ in range(3):
            envs.step([0, 1])
        assert page.url
    assert (chaos.injected["delay"], recording.frames, log.step) == (6, 4, 6)
    envs.close()
    assert agym.envs_of(envs).closed


def test_environments_are_found_under_a_handle_and_a_group() -> None:
    with agym.make([Tally] * 4, backend="serial") as envs:
        assert agym.envs_of(envs[1]) is envs
        assert agym.envs_of(TimeLimit(TimeLimit(envs[1].unwrapped, 9), 5)) is envs
        group, _ = envs.split(2)
        assert agym.envs_of(group) is group
        assert group.tap is envs.tap
        assert envs.tap.num_envs == 4


async def test_environments_of_async_code_are_found_once_they_are_open() -> None:
    envs = agym.make_async([Tally] * 2, backend="serial")
    with pytest.raises(agym.ClosedError, match="not open"):
        _ = envs.tap
    async with envs:
        assert agym.envs_of(envs[0]) is envs
        assert envs.tap.hooks == ()


class Circle:
    """Wraps itself."""

    @property
    def env(self) -> Any:
        return self


OTHERS = [None, 3, "CartPole-v1", Tally(), TimeLimit(Tally(), 3), Circle()]
OTHERS += [gymnasium.vector.SyncVectorEnv([Tally])]


@pytest.mark.parametrize("wrong", OTHERS, ids=lambda wrong: type(wrong).__name__)
def test_other_things_are_refused_with_the_name_of_the_caller(wrong: Any) -> None:
    message = f"takes environments that agym runs, not {type(wrong).__name__}: pass those"
    with pytest.raises(agym.UsageError, match=rf"my\.tool {message}"):
        agym.envs_of(wrong, "my.tool")
    for tool in (agym.chaos, agym.watch):
        with pytest.raises(agym.UsageError, match=rf"{message}.*agym\.make_vec"):
            tool(wrong)


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ({"backend": "serial"}, (True, None, None)),
        ({"backend": FORK, "workers": 2, "timeout": 20}, (False, 20, "worker")),
    ],
)
def test_the_tap_says_how_environments_run(
    options: dict[str, Any], known: tuple[bool, float | None, str | None]
) -> None:
    with agym.make([Tally] * 2, autoreset="same_step", **options) as envs:
        tap = envs.tap
        assert (tap.inline, tap.timeout, tap.timeout_ends) == known
        assert (tap.num_envs, tap.autoreset, tap.closed, tap.lost) == (2, "same_step", False, ())
        assert [tap.worker_of(i) for i in range(2)] == [0, len(envs.stats().workers) - 1]
        assert tap.usable((0, 1)) == ()
        envs.reset()
        assert (tap.usable((0, 1)), tap.unstepped()) == ((0, 1), (0, 1))
        envs.step([0, 0])
        assert (tap.steps().tolist(), tap.unstepped()) == ([1, 1], ())
    assert tap.closed
    assert [env.steps for env in tap.stats().envs] == [1, 1]
    with pytest.raises(agym.ClosedError, match="closed"):
        _ = envs.tap


def test_the_tap_knows_lost_environments() -> None:
    with agym.make([Tally] * 2, backend=FORK, workers=2) as envs:
        envs.reset()
        with agym.chaos(envs[0], kill=1.0, ways=["kill"]) as chaos, pytest.raises(agym.AgymError):
            envs.step([0, 0])
        assert chaos.injected["kill"] == 2
        assert envs.tap.lost == (0, 1)
        envs.restart()
        assert envs.tap.lost == ()
