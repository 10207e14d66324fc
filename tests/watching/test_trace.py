"""A timeline has all that ran, when it ran, and says how much of it overlapped."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import agym
from agym.cli.app import app
from agym.core.protocol.metrics.spans import MIN_SPANS, SpanLog, SpanReader, span_fields
from agym.testing import Script
from agym.watching import trace as timeline
from agym.watching.trace_report import Span, draw, measure, read_spans
from tests.support.drivers import APIS, FORKED, Setup, attached, each_api, everywhere, opened
from tests.support.envs.plain_envs import Tally
from tests.support.insides import engine_of


def kinds(spans: list[Span]) -> Counter[str]:
    """How many operations of each kind environments did."""
    return Counter(span.name.split()[0] for span in spans if span.group == "environments")


@each_api
@everywhere
def test_everything_that_ran_is_there(setup: Setup, api: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with opened(api, setup.of(3), **setup.options) as envs:
        envs.reset()  # before it began
        with attached(envs, partial(agym.trace, path=path)) as trace:
            envs.reset()
            for _ in range(4):
                with agym.mark("thinking"):
                    pass
                envs.step([0] * 3)
            envs.render([1])
            envs.call("add", 1)
    spans = read_spans(path)
    hosts = 1 if setup.name == "serial" else 3
    assert kinds(spans) == {"reset": hosts, "step": 4 * hosts, "render": 1, "call": hosts}
    assert len({span.lane for span in spans if span.group == "environments"}) == hosts
    assert [span.name for span in spans if span.group == "caller"] == ["thinking"] * 4
    assert all(0 <= span.started <= span.stopped < 60 for span in spans)
    assert trace.lost == 0


async def test_who_waits_is_seen(script: Script, tmp_path: Path) -> None:
    path = tmp_path / "run.json"

    async def play(name: str, env: Any) -> None:
        with agym.mark(name):
            await env.step(1)

    options: Any = {**FORKED, "workers": 2, "autoreset": "disabled"}
    async with agym.make_async(script.factories(3), **options) as envs:
        await envs.reset()
        for i in range(2):
            script.set(i, "step", "wait")
        with agym.trace(envs, path):
            async with asyncio.TaskGroup() as group:
                for i, name in enumerate("ab"):
                    group.create_task(play(name, envs[i]), name=name)
                await asyncio.sleep(0)  # both have sent their steps, and wait
                for i in range(2):
                    await asyncio.to_thread(script.open, i)
    spans = read_spans(path)
    assert {(s.lane, s.name) for s in spans if s.group == "caller"} == {("a", "a"), ("b", "b")}
    waited = {(s.lane, s.name) for s in spans if s.group == "waiting"}
    assert waited == {("a", "step"), ("b", "step")}
    assert kinds(spans) == {"step": 2}


def test_several_environments_and_blocks_of_threads(tmp_path: Path) -> None:
    path = tmp_path / "run.json"

    def block() -> None:
        with agym.mark("elsewhere"):
            pass

    with (
        agym.make("CartPole-v1", 1, backend="serial") as serial,
        agym.make("CartPole-v1", 1, backend="thread") as threads,
        agym.trace([serial, threads], path),
        ThreadPoolExecutor(1, "another") as pool,
    ):
        serial.reset()
        threads.reset()
        pool.submit(block).result()
    spans = {(span.group, span.lane, span.name) for span in read_spans(path)}
    assert {span for span in spans if span[0] != "waiting"} == {
        ("environments", "CartPole-v1 #0: the caller's thread of environment 0", "reset ×1"),
        ("environments", "CartPole-v1 #1: worker of environment 0", "reset ×1"),
        ("caller", "another_0", "elsewhere"),
    }


@pytest.mark.parametrize("api", APIS)
def test_nothing_is_written_unless_somebody_records(api: str, tmp_path: Path) -> None:
    with opened(api, [Tally] * 2, backend="serial") as envs:
        arrays = engine_of(envs if api == "sync" else envs.envs).life.table.gauges.arrays
        with agym.mark("nobody looks"):
            envs.reset()
            envs.step([0, 0])
        assert not arrays["spanned"].any()
        traced = envs if api == "sync" else envs.envs
        with agym.trace(traced, tmp_path / "a.json"):
            with agym.trace(traced, tmp_path / "b.json"):
                envs.step([0, 0])
            envs.step([0, 0])
        written = arrays["spanned"].copy()
        envs.step([0, 0])
        assert (arrays["spanned"] == written).all()
    assert kinds(read_spans(tmp_path / "a.json")) == {"step": 2}
    assert kinds(read_spans(tmp_path / "b.json")) == {"step": 1}


def test_a_ring_keeps_the_latest() -> None:
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in span_fields(1 << 10).items()}
    reader, log = SpanReader(arrays), SpanLog(arrays, 7)
    for k in range(MIN_SPANS + 10):
        log.add("step", 1, k, k + 1)
    ((first, spans),) = reader.read()
    assert first == 7
    assert spans[:, 2].tolist() == [*range(10, MIN_SPANS + 10)]
    assert reader.read() == []
    SpanLog(arrays, 7).add("unheard of", -3, 5, 6)  # another host goes on there
    ((_, spans),) = reader.read()
    assert spans.tolist() == [[0, -3, 5, 6]]
    reader.stop()
    assert not arrays["recording"].any()


def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(timeline, "MAX_SPANS", 5)
    with agym.trace([], tmp_path / "run.json") as trace:
        for _ in range(8):
            with agym.mark("block"):
                pass
    assert trace.lost == 3
    assert len(read_spans(tmp_path / "run.json")) == 5


def test_overlap_is_told_of_each_block() -> None:
    env, ours, waits = "environments", "caller", "waiting"
    spans = [
        Span(env, "0", "step", 0.0, 3.0),
        Span(env, "0", "step", 6.0, 7.0),
        Span(waits, "main", "step", 4.0, 8.0),
        Span(ours, "main", "backward", 2.5, 4.0),
        Span(ours, "main", "inner", 2.6, 2.7),
        Span(ours, "main", "forward", 6.5, 9.0),
        Span(ours, "another", "learning", 6.5, 7.5),
    ]
    found = measure(spans)
    assert (found.seconds, found.caller, found.environments, found.both) == (9.0, 3.5, 4.0, 1.0)
    assert str(found).startswith("25% of the environments' time was hidden")
    assert [*found.marks] == ["forward", "backward", "learning", "inner"]
    assert found.marks["forward"].both == 0.0, "the main thread waited until 8.0"
    assert "  backward  1.5 s in 1 block, environments ran for 33% of that time" in str(found)
    unmarked = measure([span for span in spans if span.group != ours])
    assert (unmarked.caller, unmarked.both, unmarked.marks) == (4.0, 3.0, {})
    assert "agym.mark" in str(unmarked)
    assert measure([]).share == measure([]).hidden == 0.0
    assert "nothing ran" in str(measure([]))


def waited_for(path: Path) -> None:
    """Check a timeline of four steps that were waited for in one block."""
    spans = read_spans(path)
    (block,) = (span for span in spans if span.group == "caller")
    waits = [span for span in spans if span.group == "waiting" or "caller's thread" in span.lane]
    assert waits
    waited = sum(span.stopped - span.started for span in waits)
    assert measure(spans).caller == pytest.approx(block.stopped - block.started - waited, abs=1e-6)


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_a_step_that_is_waited_for_is_not_hidden(backend: Any, tmp_path: Path) -> None:
    with agym.make([partial(Tally)] * 3, backend=backend) as envs:
        envs.reset()
        with agym.trace(envs, tmp_path / "run.json"), agym.mark("rollout"):
            for _ in range(4):
                envs.step([0] * 3)
    waited_for(tmp_path / "run.json")


@pytest.mark.parametrize("backend", ["serial", "thread"])
async def test_a_step_that_is_awaited_is_not_hidden(backend: Any, tmp_path: Path) -> None:
    async with agym.make_async([partial(Tally)] * 3, backend=backend) as envs:
        await envs.reset()
        with agym.trace(envs, tmp_path / "run.json"), agym.mark("rollout"):
            for _ in range(4):
                await envs.step([0] * 3)
    waited_for(tmp_path / "run.json")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["environments", "caller", "waiting"]),
            st.integers(0, 30),
            st.integers(1, 9),
        ),
        max_size=12,
    )
)
def test_overlap_is_counted_second_by_second(drawn: list[tuple[str, int, int]]) -> None:
    spans = [Span(group, "", "", started, started + length) for group, started, length in drawn]
    seconds = {
        group: {
            k
            for g, started, length in drawn
            if g == group
            for k in range(started, started + length)
        }
        for group in ("environments", "caller", "waiting")
    }
    found = measure(spans)
    assert found.environments == len(seconds["environments"])
    if seconds["caller"]:
        computing = seconds["caller"] - seconds["waiting"]
        assert found.caller == len(computing)
        assert found.both == len(computing & seconds["environments"])


@pytest.fixture(scope="session")
def fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have matplotlib open its fonts, which it keeps open."""
    draw([Span("environments", "×", "step", 0.0, 2.0)], tmp_path_factory.mktemp("fonts") / "a.png")


@pytest.mark.usefixtures("fonts")
def test_the_command_tells_and_draws(tmp_path: Path) -> None:
    path, picture = tmp_path / "run.json", tmp_path / "run.png"
    with agym.make([partial(Tally)] * 2, **FORKED, workers=2) as envs, agym.trace(envs, path):
        envs.reset()
        envs.send([0, 0])
        with agym.mark("backward"):
            sum(range(1000))
        envs.recv(min_envs=2)
    result = CliRunner().invoke(app, ["trace", str(path), "-o", str(picture)])
    assert result.exit_code == 0, result.output
    assert str(agym.overlap(path)) in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "wrong.json").write_text("[1, 2]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "nan.json").write_text(path.read_text().replace('"ts": ', '"ts": NaN, "was": '))
    for arguments in (
        [str(tmp_path / "deep.json")],
        [str(tmp_path / "nan.json")],
        [str(tmp_path / "wrong.json")],
        [str(tmp_path / "none.json")],
        [str(path), "-o", str(tmp_path / "run.pdf")],
    ):
        assert CliRunner().invoke(app, ["trace", *arguments]).exit_code == 2


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(agym.UsageError, match="a folder that does not exist"):
        agym.trace([], tmp_path / "nowhere" / "run.json")
