"""The account of a batch under worker processes: its parts, its sentences, its chart."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.measuring.processes import CoreUse, core_use
from benchmarks.reports.account_plot import widths
from benchmarks.reports.results import Report, Settings
from benchmarks.throughput.account import largest, sentences
from benchmarks.throughput.account_parts import NO_WAITS, Account, Slice, Timing, per_batch, split
from tests.benchmarks.tiny import PNG, run

PARTS = [
    "bare", "host and cache", "waiting for a core", "barrier", "waking", "transport", "caller",
]  # fmt: skip


def timing(work: float, *, waiting: float | None = 0.0, barrier: float = 10.0) -> Timing:
    use = None if waiting is None else CoreUse(work, waiting, 1.0)
    return Timing(100, work + barrier + 12.0, 5.0, work, barrier, 4.0, 3.0, 2.0, use, None)


# ---------------------------------------------------------------- the command


@pytest.mark.full
def test_command_splits_every_slice(tmp_path: Path, fonts: None) -> None:
    done = run(
        tmp_path, "account", "CartPole-v1", "4", "--seconds", "0.02", "--repeats", "2",
        "--workers", "2", plot="account.png",
    )  # fmt: skip
    assert len(done.data["slices"]) == 2
    for each in done.data["slices"]:
        assert [*each["parts"]] == PARTS
        assert sum(each["parts"].values()) == pytest.approx(each["batch"])
        assert each["ratio"] == pytest.approx(each["parts"]["bare"] / each["batch"])
        assert min(each["parts"][name] for name in PARTS if name != "host and cache") >= 0
        assert each["batches"] > 0
    assert done.data["pin"] is False
    assert [*done.data["medians"]["parts"]] == PARTS
    assert "CartPole-v1 ×4, 2 workers" in done.stdout
    assert "Median: process reaches" in done.stdout
    assert (tmp_path / "account.png").read_bytes().startswith(PNG)


def test_environment_that_does_not_exist_is_refused() -> None:
    done = CliRunner().invoke(app, ["account", "NoSuch-v0", "4"])
    assert done.exit_code == 2
    assert "env='NoSuch-v0' cannot be found" in done.output


def test_help_is_shown_without_arguments() -> None:
    assert (
        "python -m benchmarks account Acrobot-v1 64" in CliRunner().invoke(app, ["account"]).output
    )


# ---------------------------------------------------------------- parts


def test_times_of_workers_are_averages() -> None:
    """Two steps of two workers; the second is posted 1 µs after the end of the first."""
    steps = [
        (2_000, 40_000, 4_000, 8_000, 14_000, 38_000),
        (41_000, 60_000, 43_000, 43_000, 57_000, 59_000),
    ]
    times = split(0, steps)
    assert times.pop("uneven") == pytest.approx(5.5)  # of the second worker, beyond the average
    assert times == pytest.approx(
        {"batch": 30.0, "waking": 3.0, "work": 17.5, "barrier": 6.5, "transport": 1.5,
         "caller": 1.5}
    )  # fmt: skip
    assert sum(times.values()) == pytest.approx(2 * times["batch"])


@pytest.mark.parametrize(
    ("work", "waiting", "host", "core"),
    [
        (130.0, 20.0, 10.0, 20.0),
        (130.0, 90.0, 0.0, 30.0),  # the rest of the wait fell outside of the work
        (80.0, 90.0, -20.0, 0.0),
        (130.0, None, 30.0, 0.0),
    ],
)
def test_work_beyond_bare_is_waiting_at_most_as_long_as_workers_waited(
    work: float, waiting: float | None, host: float, core: float
) -> None:
    each = Slice.of(100.0, timing(work, waiting=waiting))
    assert (each.parts["host and cache"], each.parts["waiting for a core"]) == (host, core)
    assert sum(each.parts.values()) == pytest.approx(each.timing.batch)
    assert each.ratio == pytest.approx(100.0 / each.timing.batch)


# ---------------------------------------------------------------- use of the cores


def test_use_of_the_cores_is_read_where_the_system_tells_it(tmp_path: Path) -> None:
    for pid, text in ((1, "5000 1000 3\n"), (2, "7000 2000 4\n"), (3, "0 0 0\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "schedstat").write_text(text)
    assert core_use([1, 2], tmp_path) == CoreUse(12.0, 3.0, 7)
    assert core_use([3], tmp_path) is core_use([1, 4], tmp_path) is None


def test_use_per_batch_is_unknown_if_either_end_is() -> None:
    before, after = CoreUse(10.0, 2.0, 1), CoreUse(30.0, 6.0, 3)
    assert per_batch(before, after, 4) == CoreUse(5.0, 1.0, 0.5)
    assert per_batch(None, after, 4) is per_batch(before, None, 4) is None


@pytest.mark.full
def test_a_system_that_does_not_tell_the_waits_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.throughput.account_parts.core_use", lambda pids: None)
    done = run(tmp_path, "account", "Null-v0", "2", "--seconds", "0.002", "--repeats", "1")
    assert done.data["workloads"][0]["notes"] == [NO_WAITS]
    assert NO_WAITS[:32] in done.stdout
    (each,) = done.data["slices"]
    assert each["parts"]["waiting for a core"] == 0
    assert each["worker_use"] is each["caller_use"] is None


# ---------------------------------------------------------------- sentences and the chart


def test_slow_slices_have_a_sentence_with_their_largest_parts() -> None:
    slices = (
        Slice.of(100.0, timing(110.0)),
        Slice.of(100.0, timing(160.0, waiting=48.0, barrier=51.0)),
        Slice.of(100.0, timing(120.0)),
    )
    account = Account(Report({}, Settings()), pin=False, slices=slices)
    *slow, summary, uneven = sentences(account)
    assert slow == [
        "Slice 2 at 0.45: barrier 51 µs and waiting for a core 48 µs.",
        "Slice 3 at 0.70: host and cache 20 µs and barrier 10 µs.",
    ]
    assert summary == (
        "Median: process reaches 0.70 of bare loops; the largest parts of the gap are"
        " host and cache 12 µs and barrier 10 µs."
    )
    assert uneven.startswith("Of the barrier, 2 µs are caused by the same workers")


def test_largest_parts_leave_bare_out() -> None:
    parts = {"bare": 5000.0, "barrier": 1234.4, "waking": 3.0, "host and cache": -50.0}
    assert largest(parts) == "barrier 1,234 µs and waking 3 µs"


def test_a_part_below_zero_shortens_the_bar_of_the_bare_part() -> None:
    drawn = widths({"bare": 100.0, "host and cache": -20.0, "barrier": 5.0})
    assert drawn == {"bare": 80.0, "host and cache": 0.0, "barrier": 5.0}
