"""What fails beside an environment, in agym's own code or a library, ends a call: none waits."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.core._system import pygame_support
from agym.core.hosts.loop_host import LoopHost
from agym.core.hosts.sync_host import SyncHost
from agym.core.protocol.metrics.gauges import Meter
from agym.testing import AsyncScriptedEnv, ScriptedEnv, World
from tests.support.drivers import each_api
from tests.support.worlds import ASYNCIO, COROUTINES, PROCESS, THREAD, over, steps_of


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have agym itself raise after each render, in whichever thread or process that is."""

    def breaking(method: Callable[..., None], kind: int) -> Any:
        def measure(self: Meter, *arguments: Any) -> None:
            if arguments[kind] == "render":
                raise RuntimeError("boom")
            method(self, *arguments)

        return measure

    monkeypatch.setattr(Meter, "did", breaking(Meter.did, 0))
    monkeypatch.setattr(Meter, "end_one", breaking(Meter.end_one, 1))


@each_api
@over(THREAD, PROCESS, COROUTINES)
@pytest.mark.usefixtures("breaks")
def test_a_worker_whose_host_fails_is_replaced(world: World, api: Any) -> None:
    with replace(world, api=api).open(4, length=9) as envs:
        envs.reset()
        with pytest.raises(agym.WorkerDied, match=r"worker 0.*environments 0 to 1") as caught:
            envs.render([0])
        assert caught.value.env_ids == (0, 1)
        if world is THREAD:
            assert "its thread raised RuntimeError: boom" in str(caught.value)
            assert isinstance(caught.value.__cause__, RuntimeError)
        envs.step([1, 1], env_ids=[2, 3])
        assert envs.restart() == [0, 1]
        envs.reset(env_ids=[0, 1])
        assert steps_of(envs.step([1] * 4)) == [[1, 1], [1, 1], [2, 1], [2, 1]]
    with replace(world, api=api).open(4, length=9, on_fault="restart") as envs:
        envs.reset()
        with pytest.raises(agym.WorkerDied):  # a render cannot be repeated
            envs.render([0])
        result = envs.step([1] * 4)
        assert result.truncated.tolist() == [True, True, False, False]
        assert {result.infos[i]["fault"].kind for i in (0, 1)} == {"died"}
        assert steps_of(result)[2:] == [[1, 1]] * 2


@each_api
@pytest.mark.usefixtures("breaks")
@pytest.mark.parametrize("on_fault", ["raise", "restart"])
def test_a_loop_in_this_process_is_not_replaced(api: Any, on_fault: str) -> None:
    with replace(ASYNCIO, api=api).open(3, on_fault=on_fault) as envs:
        envs.reset()
        with pytest.raises(agym.WorkerDied, match="its event loop raised RuntimeError: boom") as it:
            envs.render([1])
        assert isinstance(it.value.__cause__, RuntimeError)
        for call in (envs.reset, envs.restart, partial(envs.step, [1, 1, 1])):
            with pytest.raises(agym.WorkerDied, match="make new ones"):
                call()


class Stops(AsyncScriptedEnv):
    """Stops the event loop that it runs on, or ends it by an exception of a task of its own."""

    async def step(self, action: Any) -> Any:
        loop = asyncio.get_running_loop()
        if action:
            loop.call_soon(*[(loop.stop,), (sys.exit, 3)][action - 1])
            await loop.create_future()
        return await super().step(action)


@pytest.mark.parametrize(
    ("action", "message"), [(1, "stopped its event loop"), (2, "SystemExit: 3")]
)
def test_an_environment_ends_its_loop(action: int, message: str) -> None:
    """Closing races with the end of the loop: it neither waits nor leaves a task behind."""
    for _ in range(50):
        with agym.make(Stops, 2, backend="asyncio", timeout=20) as envs:
            envs.reset()
            with pytest.raises(agym.WorkerDied, match=message):
                envs.step([0, action])
            with pytest.raises(agym.WorkerDied, match=message):
                envs.reset()


each_host = pytest.mark.parametrize(("host", "world"), [(SyncHost, THREAD), (LoopHost, ASYNCIO)])


@each_host
def test_a_host_may_fail_before_the_first_reset(
    host: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attach(self: Any, table: Any) -> None:
        raise RuntimeError("no room for the table")

    monkeypatch.setattr(host, "attach", attach)
    with world.open(1) as envs, pytest.raises(agym.WorkerDied, match="no room for the table"):
        envs.reset()


@each_host
def test_a_host_may_fail_while_closing(
    host: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = host.close

    def close(self: Any) -> Any:
        if host is LoopHost:
            return close_later(self)
        closing(self)
        raise RuntimeError("boom")

    async def close_later(self: Any) -> None:
        await closing(self)
        raise RuntimeError("boom")

    with world.open(1) as envs:
        monkeypatch.setattr(host, "close", close)
        with pytest.raises(agym.EnvError, match="raised in close: RuntimeError: boom"):
            envs.close()


@pytest.fixture
def pygame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a pygame that this process has not imported yet."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "pygame"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(pygame_support, "_done", False)
    (tmp_path / "pygame").mkdir()
    return tmp_path / "pygame" / "__init__.py"


@pytest.mark.parametrize(
    "line",
    [
        "raise RuntimeError('a broken build')",
        "import warnings; warnings.warn('it is old', DeprecationWarning)",
    ],
)
def test_a_pygame_that_cannot_be_imported(line: str, pygame: Path) -> None:
    """Environments that do not need it do without it."""
    pygame.write_text(line)
    with agym.make(ScriptedEnv, 2, backend="thread") as envs:
        envs.reset()
        assert envs.render() == ["1:0", "1:0"]


def test_a_pygame_that_ends_the_thread(pygame: Path) -> None:
    pygame.write_text("raise SystemExit(1)")
    with pytest.raises(agym.WorkerDied, match="its thread raised SystemExit: 1"):
        agym.make(ScriptedEnv, 1, backend="thread")
