"""Hooks: what they see, and that nothing is left of one that is removed.

That all tools remove theirs is in ``tests/watching/test_attaching.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agym
from agym import Hook
from agym.core.backends.spinning import SpinPolicy
from agym.core.engine.hooks import Hooks
from agym.watching.live.camera import Camera
from agym.watching.live.throttle import Throttle
from tests.support.backends import FORK
from tests.support.drivers import each_api, opened
from tests.support.envs.painting_envs import Painter
from tests.support.envs.plain_envs import Tally
from tests.support.insides import engine_of, holds_somebody
from tests.support.viewers import looking, until

PROCESS: dict[str, Any] = {"backend": FORK, "workers": 2}


def test_a_page_in_use_leaves_no_hook() -> None:
    pytest.importorskip("starlette", reason="the extra `watch`")
    with agym.make([Painter] * 2, backend="serial") as envs:
        envs.reset()
        hooks = engine_of(envs).hooks
        with agym.watch(envs) as page, looking(page.url) as look:
            page.limit_speed(10**6)
            look.next("about")
            until(lambda: {Throttle, Camera} <= {*map(type, hooks.all)})
            envs.step([0, 0])
        assert not hooks.all
        envs.step([0, 0])


def test_adding_and_removing_are_idempotent() -> None:
    one, other = Hook(), Hook()
    hooks = Hooks()
    for hook in (one, other, one):
        hooks.add(hook)
    assert hooks.all == (one, other)
    for _ in range(2):
        hooks.remove(one)
        assert hooks.all == (other,)


@each_api
def test_a_removed_throttle_releases_its_caller(api: str) -> None:
    with opened(api, [Tally] * 2, **PROCESS) as envs:
        envs.reset()
        hooks, paused = engine_of(getattr(envs, "envs", envs)).hooks, Throttle(2)
        hooks.add(paused)
        paused.pause()

        def remove() -> None:
            until(partial(holds_somebody, paused))
            hooks.remove(paused)

        thread = threading.Thread(target=remove)
        thread.start()
        envs.step([0, 0])
        thread.join()
        envs.step([0, 0])


class Waits(Hook):
    """Notes the caller's waits."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []

    def after_wait(self, name: str, started: float, stopped: float, *, in_task: bool) -> None:
        assert started <= stopped <= time.perf_counter()
        self.seen.append((name, in_task))


class Slow(Tally):
    def step(self, action: Any) -> Any:
        time.sleep(0.2)  # longer than the caller is kept from its core
        return super().step(action)


def spin_on(spinning: SpinPolicy, over: Callable[[], bool], seconds: float = 0.0) -> bool:
    """Spin for as long as it takes."""
    while not over():
        time.sleep(0.001)
    return True


@each_api
@pytest.mark.parametrize("spins", [True, False])
def test_a_hook_sees_each_wait(spins: bool, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(api, [Slow] * 2, **PROCESS) as envs:
        envs.reset()
        waits = Waits()
        engine_of(envs if api == "sync" else envs.envs).hooks.add(waits)
        with monkeypatch.context() as patch:
            patch.setattr(SpinPolicy, "spin", spin_on if spins else lambda *_: False)
            for _ in range(2):
                envs.step([0, 0])
        assert waits.seen == [("step", api == "async")] * 2


def test_a_timeline_leaves_a_step_its_short_way(tmp_path: Path) -> None:
    with agym.make([Tally] * 2, backend="serial") as envs:
        hooks = engine_of(envs).hooks
        with agym.trace(envs, tmp_path / "run.json"):
            assert hooks
            assert not hooks.follow_steps
            hooks.add(Hook())
            assert hooks.follow_steps
