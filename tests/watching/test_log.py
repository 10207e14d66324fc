"""What a log writes is what the environments did, whatever it writes to."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import agym
from tests.support.backends import FORK

LENGTH = 7


def short() -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(gym.make("CartPole-v1"), LENGTH)


class Run:
    """What ``agym.log`` uses of a run of W&B; .ci/ecosystem logs to a real one."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.metrics: list[tuple[str, str]] = []
        self.threads: set[str] = set()

    def log(self, row: dict[str, float]) -> None:
        self.rows.append(row)
        self.threads.add(threading.current_thread().name)

    def define_metric(self, name: str, *, step_metric: str) -> None:
        self.metrics.append((name, step_metric))


@pytest.mark.parametrize("options", [{}, {"backend": FORK, "workers": 2}], ids=["auto", "process"])
def test_rows_are_what_the_environments_did(options: Any) -> None:
    run = Run()
    with agym.make([short] * 4, autoreset="same_step", **options) as envs:
        envs.reset(seed=0)
        with agym.log(envs, run, every=8, step=100, prefix="train/") as log:
            for _ in range(3 * LENGTH):
                envs.step([0, 1, 0, 1])
        assert log.step == 100 + 4 * 3 * LENGTH
    assert run.metrics == [(f"train/{part}/*", "train/step") for part in ("episodes", "envs")]
    assert run.threads == {"agym-log"}
    assert [row["train/step"] for row in run.rows] == [*range(108, 184, 8), 184]
    ended = [row for row in run.rows if row.get("train/episodes/ended")]
    assert sum(row["train/episodes/ended"] for row in ended) == 4 * 3
    assert {row["train/episodes/return"] for row in ended} == {float(LENGTH)}
    assert {row["train/episodes/length"] for row in ended} == {LENGTH}
    # Also a run of less than a second has them, once.
    last = run.rows[-1]
    assert last["train/envs/steps_per_second"] > 0
    assert last["train/envs/faults"] == last["train/envs/restarts"] == 0
    assert all(np.isfinite(value) for row in run.rows for value in row.values())


def test_faults_are_logged() -> None:
    rows: list[dict[str, float]] = []
    options = {"backend": FORK, "workers": 2, "on_fault": "restart"}
    with agym.make("CartPole-v1", 2, **options) as envs, agym.log(envs, rows.append):
        envs.reset(seed=0)
        envs.tap.inject_fault(0, "kill")
        for _ in range(3):
            envs.step([0, 1])
    assert rows[-1]["envs/faults"] == rows[-1]["envs/restarts"] == 1


def test_a_group_logs_its_own_steps() -> None:
    rows: list[dict[str, float]] = []
    with agym.make([short] * 4, autoreset="same_step") as envs:
        left, right = envs.split(2)
        envs.reset(seed=0)
        with agym.log(left, rows.append) as log:
            for _ in range(LENGTH):
                left.step([0, 1])
                right.step([0, 1])
        assert log.step == 2 * LENGTH
    assert [row["episodes/ended"] for row in rows] == [2]


async def test_async_environments_are_logged() -> None:
    rows: list[dict[str, float]] = []
    async with agym.make_async([short] * 2, autoreset="same_step") as envs:
        await envs.reset(seed=0)
        async with agym.log(envs, rows.append, every=2 * LENGTH):
            for _ in range(LENGTH):
                await envs.step(np.array([0, 1]))
    assert [row["episodes/ended"] for row in rows if "episodes/ended" in row] == [2]


def test_a_sink_that_raises_stops_the_log_and_not_the_steps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = []

    def sink(row: dict[str, float]) -> None:
        calls.append(row)
        raise OSError("no space left")

    with agym.make([short] * 2, autoreset="same_step") as envs:
        envs.reset(seed=0)
        log = agym.log(envs, sink, every=2)
        for _ in range(20):
            envs.step([0, 1])
        with pytest.raises(OSError, match="no space left"):
            log.close()
    assert len(calls) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "the log of environments stops: its sink raised OSError('no space left')"
    ]


async def test_a_block_that_raises_leaves_the_loop_to_the_sink() -> None:
    """The sink needs the loop, which the end of the block must not block."""
    loop, rows = asyncio.get_running_loop(), []

    async def post(row: dict[str, float]) -> None:
        rows.append(row)

    def sink(row: dict[str, float]) -> None:
        asyncio.run_coroutine_threadsafe(post(row), loop).result()

    async def fail() -> None:
        async with agym.log(envs, sink):
            await envs.step(np.array([0, 1]))
            raise ZeroDivisionError

    async with agym.make_async([short] * 2, autoreset="same_step") as envs:
        await envs.reset(seed=0)
        with pytest.raises(ZeroDivisionError):
            await fail()
    assert [row["step"] for row in rows] == [2]


class Extreme(gym.Env[Any, Any]):
    """Two episodes of one step, whose returns have no mean; reported in arrays of one element."""

    observation_space = action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        total = np.inf if action else -np.inf
        info = {"episode": {"r": np.array([total]), "l": np.array([1])}}
        return 0, total, True, False, info


def test_infinite_returns_end_neither_steps_nor_logs() -> None:
    client = pytest.importorskip("prometheus_client", reason="the extra metrics brings it")
    rows: list[dict[str, float]] = []
    registry = client.CollectorRegistry()
    with (
        agym.make([Extreme] * 2, autoreset="same_step") as envs,
        agym.metrics(envs, registry),
    ):
        envs.reset(seed=0)
        with agym.log(envs, rows.append, every=2) as log:
            for _ in range(3):
                envs.step([0, 1])
        assert log.step == 6
        assert math.isnan(registry.get_sample_value("agym_episode_return"))
    assert [row["step"] for row in rows] == [2, 4, 6, 6]
    assert sum(row.get("episodes/ended", 0) for row in rows) == 6
    assert math.isnan(rows[0]["episodes/return"])


@pytest.mark.parametrize(
    ("sink", "options", "match"),
    [
        (None, {}, r"sink=None is not callable and has no log\(\): pass a W&B run"),
        (logging.getLogger("mine"), {}, r"pass one of its methods, such as sink\.info"),
        (print, {"every": 0}, "every=0"),
        (print, {"step": -1}, "step=-1"),
    ],
)
def test_bad_arguments(sink: Any, options: Any, match: str) -> None:
    with agym.make("CartPole-v1", 2) as envs:
        with pytest.raises(agym.UsageError, match=match):
            agym.log(envs, sink, **options)
        assert envs.tap.hooks == ()
    with pytest.raises(agym.ClosedError):
        agym.log(envs, print)


def test_prometheus_reads_what_the_environments_did() -> None:
    client = pytest.importorskip("prometheus_client", reason="the extra metrics brings it")
    registry = client.CollectorRegistry()
    value = registry.get_sample_value
    options = {"backend": FORK, "workers": 2, "on_fault": "restart", "autoreset": "same_step"}
    with agym.make([short] * 4, **options) as envs:
        envs.reset(seed=0)
        with agym.metrics(envs, registry):
            assert value("agym_episode_return") is None
            for _ in range(2 * LENGTH):
                envs.step([0, 1, 0, 1])
            assert value("agym_environments") == 4
            assert value("agym_steps_total") == 8 * LENGTH
            assert value("agym_episodes_total") == 8
            assert value("agym_episode_return") == value("agym_episode_length") == LENGTH
            envs.tap.inject_fault(3, "kill")
            envs.step([0, 1, 0, 1])
            envs.step([0, 1, 0, 1])
            assert value("agym_faults_total") >= 1
            assert value("agym_worker_restarts_total", {"worker": "1"}) == 1
            assert value("agym_worker_restarts_total", {"worker": "0"}) == 0
            assert value("agym_worker_memory_bytes", {"worker": "0"}) > 1e6
            assert value("agym_worker_busy_seconds_total", {"worker": "0"}) > 0
            assert value("agym_step_seconds", {"part": "work"}) > 0
            text = client.generate_latest(registry).decode()
            assert "# TYPE agym_steps_total counter" in text
            with pytest.raises(agym.UsageError, match="pass another prefix="):
                agym.metrics(envs, registry)
            with agym.metrics(envs, registry, prefix="eval"):
                assert value("eval_environments") == 4
        assert envs.tap.hooks == ()
        assert client.generate_latest(registry) == b""
