"""One law for what is attached: ``with agym.NAME(envs, ...) as thing``, over every API."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import agym
from agym.core.engine.attached import Attached
from agym.watching.trace_report import read_spans
from tests.support.envs.painting_envs import Painter
from tests.support.insides import engine_of
from tests.support.viewers import until
from tests.watching.video.test_recording import decoded

for _module in ("starlette", "PIL", "av"):
    pytest.importorskip(_module, reason="the extras `watch` and `video`")

LOG = SimpleNamespace(add_scalar=lambda *_: None)
NAMES: dict[str, tuple[type[Attached], Callable[[Any, Path], Any]]] = {
    "chaos": (agym.Chaos, lambda envs, _: agym.chaos(envs, delay=0.5, delay_seconds=0.0)),
    "record": (agym.Recording, lambda envs, folder: agym.record(envs, folder / "run.mp4")),
    "record a gif": (agym.Recording, lambda envs, folder: agym.record(envs, folder / "run.gif")),
    "tensorboard": (agym.Log, lambda envs, _: agym.tensorboard(envs, LOG)),
    "trace": (agym.Trace, lambda envs, folder: agym.trace(envs, folder / "run.json")),
    "watch": (agym.Page, lambda envs, _: agym.watch(envs)),
}
WAITS_FOR_NOTHING = {"chaos", "trace"}

each_name = pytest.mark.parametrize("name", NAMES)


def check_file(name: str, folder: Path) -> None:
    """Check that the file of a recording or a trace is whole."""
    if name.startswith("record"):
        (path,) = folder.iterdir()
        assert decoded(path)
    elif name == "trace":
        assert any(span.name.startswith("step") for span in read_spans(folder / "run.json"))


def sync() -> Any:
    return agym.make([Painter] * 2, backend="serial", autoreset="next_step")


def gymnasium() -> Any:
    return agym.AgymVectorEnv([Painter] * 2, backend="serial")


def stable_baselines3() -> Any:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    return agym.sb3.AgymVecEnv([Painter] * 2, backend="serial")


@each_name
@pytest.mark.parametrize("leaves", ["block", "close", "error"])
@pytest.mark.parametrize("make", [sync, gymnasium, stable_baselines3])
def test_it_follows_until_the_end_of_the_block_or_close(
    make: Callable[[], Any], leaves: str, name: str, tmp_path: Path
) -> None:
    kind, attach = NAMES[name]
    envs = make()
    hooks = engine_of(agym.envs_of(envs)).hooks
    envs.reset()
    thing = attach(envs, tmp_path)
    assert isinstance(thing, kind)
    if name != "watch":  # a page attaches when somebody looks at it
        assert hooks.all
    if leaves == "close":
        envs.step(np.zeros(2, np.int64))
        thing.close()
    else:
        with suppress(ZeroDivisionError), thing as entered:
            assert entered is thing
            envs.step(np.zeros(2, np.int64))
            if leaves == "error":
                raise ZeroDivisionError
    assert not hooks.all
    check_file(name, tmp_path)
    thing.close()
    envs.step(np.zeros(2, np.int64))
    with attach(envs, tmp_path):  # there is room for another
        pass
    envs.close()


@each_name
async def test_async_with_is_for_async_environments(name: str, tmp_path: Path) -> None:
    kind, attach = NAMES[name]
    async with agym.make_async([Painter] * 2, backend="serial") as envs:
        await envs.reset()
        async with attach(envs, tmp_path) as thing:
            assert isinstance(thing, kind)
            await envs.step([0, 0])
        assert not envs.tap.hooks
        check_file(name, tmp_path)
        await thing.aclose()
        await envs.step([0, 0])
        with pytest.raises(ZeroDivisionError):
            async with attach(envs, tmp_path):
                raise ZeroDivisionError
        assert not envs.tap.hooks
        other = attach(envs, tmp_path)
        await other.aclose()
        assert not envs.tap.hooks


@each_name
async def test_the_wrong_block_is_refused_where_the_end_waits(name: str, tmp_path: Path) -> None:
    _, attach = NAMES[name]
    waits = name not in WAITS_FOR_NOTHING

    def refused(match: str) -> Any:
        return pytest.raises(agym.UsageError, match=match) if waits else nullcontext()

    async with agym.make_async([Painter] * 2, backend="serial") as envs:
        thing = attach(envs, tmp_path)
        with refused("async with"), thing:
            await envs.reset()
        with refused("aclose"):
            thing.close()
        await thing.aclose()
        assert not envs.tap.hooks
    with sync() as envs:
        thing = attach(envs, tmp_path)
        with refused("use `with`"):
            async with thing:
                envs.reset()
        with refused(r"close\(\)"):
            await thing.aclose()
        thing.close()
        assert not envs.tap.hooks


@each_name
def test_a_handle_stands_for_all_environments(name: str, tmp_path: Path) -> None:
    _, attach = NAMES[name]
    with sync() as envs:
        envs.reset()
        with attach(envs[1], tmp_path):
            envs.step([0, 0])
            if name != "watch":
                until(lambda: bool(envs.tap.hooks))
        assert not envs.tap.hooks


@each_name
def test_closed_and_other_environments_are_refused(name: str, tmp_path: Path) -> None:
    _, attach = NAMES[name]
    with sync() as envs:
        pass
    with pytest.raises(agym.ClosedError, match="closed"):
        attach(envs, tmp_path)
    with pytest.raises(agym.ClosedError, match="not open yet"):
        attach(agym.make_async([Painter] * 2, backend="serial"), tmp_path)
    with pytest.raises(
        agym.UsageError,
        match=rf"agym\.{name.split()[0]} takes environments that agym runs, not object",
    ):
        attach(object(), tmp_path)
    assert not [*tmp_path.iterdir()]
