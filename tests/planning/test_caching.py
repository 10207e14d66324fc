"""What this machine costs is measured once, and whatever the cache does is no error."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agym.api.auto import machine
from agym.api.auto.machine import forget_machine, recall_machines, remembered_costs, this_machine
from agym.api.auto.measure_machine import falling, measure_machine
from agym.errors import UsageError
from agym.planning import caching
from agym.planning.caching import (
    cache_folder,
    key_of,
    recall,
    recall_measured,
    recall_profile,
    remember,
    remember_measured,
    remember_profile,
    source_file,
)
from agym.planning.model import Curve, Machine, Profile, worker_counts
from agym.planning.typical import PLAUSIBLE, extremes, typical
from tests.support.envs.plain_envs import Tally

PROFILE = Profile("Tally", 0.1, 0.2, 0.3, 0.4, 5, 6, False)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    another_process()
    yield tmp_path / "agym"
    another_process()


def another_process() -> None:
    """Forget what this process knows, but not what is on disk."""
    machine.latest.machine = None


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many cores other programs keep busy."""
    load = [0.0]

    class Load:
        def cores(self) -> float:
            return load[0]

    monkeypatch.setattr(machine, "OtherLoad", Load)
    monkeypatch.setattr(machine, "LOOK_SECONDS", 0.0)
    return load


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, load: list[float]) -> list[int]:
    """How often the machine was measured."""
    calls: list[int] = []

    def measure(cores: int, on_progress: Any = None) -> Machine:
        calls.append(cores)
        return replace(typical(), load=load[0], measured=4e9)  # so it is not repeated

    monkeypatch.setattr(machine, "measure_machine", measure)
    return calls


def test_this_machine_is_measured_once(measured: list[int]) -> None:
    first = this_machine()
    assert this_machine() is first
    another_process()
    assert this_machine() == first
    assert remembered_costs() == first
    assert len(measured) == 1


def test_a_machine_that_others_keep_busy_is_another(measured: list[int], load: list[float]) -> None:
    quiet = this_machine()
    for busy in (0.9, 0.1, 1.1):
        load[0] = busy
        another_process()
        assert this_machine().load == (0.9 if busy > 0.5 else 0.0)
    assert len(measured) == 2
    assert remembered_costs() == quiet


def test_a_machine_with_other_cores_is_another(
    measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    this_machine()
    for name, value in (("core_numbers", [7]), ("quota", 1.5), ("available_cores", 1)):
        monkeypatch.setattr(machine, name, lambda value=value: value)
        another_process()
        this_machine()
    assert len(measured) == 4


def test_costs_that_were_refuted_are_measured_again(measured: list[int], load: list[float]) -> None:
    this_machine()
    load[0] = 1.0
    another_process()
    forget_machine(this_machine())
    assert [*recall_machines(typical().cores)] == [0]
    this_machine()
    assert len(measured) == 3


def test_what_this_process_saw_counts_for_a_minute(
    measured: list[int], load: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    this_machine()
    load[0] = 1.0
    assert this_machine().load == 0.0
    monkeypatch.setattr(machine.latest, "until", 0.0)
    assert this_machine().load == 1.0


def test_a_bad_minute_is_not_kept(load: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    now, slowdowns, measured = 1e9, [3.0, 2.0, 1.1, 9.0], []

    def measure(cores: int, on_progress: Any = None) -> Machine:
        measured.append(slowdowns[len(measured)])
        curve = Curve((1e-3,), (1e-3,), (1e-3 * measured[-1],))
        return replace(typical(), curves={1: curve}, load=0.0, measured=now)

    monkeypatch.setattr(machine, "measure_machine", measure)
    monkeypatch.setattr(machine, "time", SimpleNamespace(**{**vars(time), "time": lambda: now}))

    def slowdown_after(seconds: float) -> float:
        nonlocal now
        now += seconds
        another_process()
        return this_machine().slowdown

    assert slowdown_after(0) == pytest.approx(3.0)
    assert slowdown_after(50) == pytest.approx(3.0)
    assert slowdown_after(20) == pytest.approx(2.0)
    assert slowdown_after(500) == pytest.approx(2.0)
    assert slowdown_after(200) == pytest.approx(1.1)
    assert slowdown_after(1e6) == pytest.approx(1.1)
    assert len(measured) == 3


def test_a_slow_machine_is_measured_four_times(
    load: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[float] = []

    def measure(cores: int, on_progress: Any = None) -> Machine:
        measured.append(2.0 + len(measured))
        curve = Curve((1e-3,), (1e-3,), (1e-3 * measured[-1],))
        return replace(typical(), curves={1: curve}, load=0.0)  # measured decades ago

    monkeypatch.setattr(machine, "measure_machine", measure)
    for _ in range(10):
        another_process()
        assert this_machine().slowdown == pytest.approx(2.0)
    assert len(measured) == 4


@pytest.mark.parametrize("text", ["", "{", "[]", '{"0": {}}', '{"0": {"costs": {"serial": {}}}}'])
def test_a_file_that_cannot_be_read_is_written_anew(
    measured: list[int], folder: Path, text: str
) -> None:
    this_machine()
    (file,) = folder.iterdir()
    good = file.read_text()
    file.write_text(text)
    another_process()
    this_machine()
    assert len(measured) == 2
    assert file.read_text() == good


@pytest.mark.parametrize("part", ["work", "usual", "worst"])
def test_a_curve_with_wrong_numbers_is_not_used(
    measured: list[int], folder: Path, part: str
) -> None:
    this_machine()
    (file,) = folder.iterdir()
    for wrong in (-1.0, "x", None):
        record = json.loads(file.read_text())
        record["0"]["curves"]["1"][part][0] = wrong
        file.write_text(json.dumps(record))
        assert recall_machines(typical().cores) == {}


def test_a_folder_that_cannot_be_written_is_no_error(measured: list[int], folder: Path) -> None:
    folder.write_text("a file")
    this_machine()
    another_process()
    this_machine()
    assert len(measured) == 2
    assert folder.read_text() == "a file"


def test_a_user_without_a_home(measured: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(RuntimeError):
        cache_folder()
    this_machine()
    assert len(measured) == 1


def test_where_nothing_can_be_measured_costs_are_typical(
    monkeypatch: pytest.MonkeyPatch, folder: Path, load: list[float]
) -> None:
    def fails(cores: int, on_progress: Any) -> Machine:
        raise UsageError("worker processes need something")

    monkeypatch.setattr(machine, "measure_machine", fails)
    assert this_machine() == typical()
    assert not folder.exists()


def test_nothing_is_left_behind_when_a_record_cannot_be_written(folder: Path) -> None:
    with pytest.raises(TypeError):
        remember("profile", "key", {"what": object()})
    assert [*folder.iterdir()] == []


def test_records_come_back_as_they_were() -> None:
    remember("profile", "key", {"a": 1.5})
    assert recall("profile", "key") == {"a": 1.5}
    assert recall("machine", "key") is None
    assert key_of("a") == key_of("a") != key_of("b")


def test_a_profile_is_that_of_its_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember_profile(Tally, PROFILE, source_file(Tally()))
    assert recall_profile(Tally) == PROFILE
    assert recall_profile(lambda: Tally()) is None
    (file,) = folder.iterdir()
    text = file.read_text()
    changed = text.replace('"changed": ', '"changed": 1')
    assert changed != text
    file.write_text(changed)
    assert recall_profile(Tally) is None


def test_factories_that_hold_much_or_cannot_be_pickled_are_not_looked_up(folder: Path) -> None:
    data, lock = bytes(1_000_000), threading.Lock()
    for factory in (lambda: Tally(len(data)), lambda: lock and Tally()):
        remember_profile(factory, PROFILE, None)
        assert recall_profile(factory) is None
    assert not folder.exists()


def test_measured_times_count_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_measured(Tally, 8, {"process ×2": 2e-3})
    remember_measured(Tally, 8, {"serial": 1e-3})
    assert recall_measured(Tally, 8) == {"process ×2": 2e-3, "serial": 1e-3}
    assert recall_measured(Tally, 9) == {}
    now = time.time()
    later = [0.6 * caching.MEASURED_SECONDS]
    monkeypatch.setattr(caching, "time", SimpleNamespace(time=lambda: now + later[0]))
    remember_measured(Tally, 8, {"serial": 3e-3})  # the other does not become younger
    later[0] = 1.2 * caching.MEASURED_SECONDS
    assert recall_measured(Tally, 8) == {"serial": 3e-3}
    later[0] = 2 * caching.MEASURED_SECONDS
    assert recall_measured(Tally, 8) == {}


@pytest.mark.full
def test_a_machine_is_measured_with_all_its_backends() -> None:
    shares: list[float] = []
    found = measure_machine(2, shares.append)
    assert shares == sorted(shares)
    assert found.costs.keys() == typical().costs.keys()
    assert [*found.curves] == [*found.starts] == worker_counts(2)
    assert found.load is not None
    for curve in found.curves.values():
        assert [*curve.work] == sorted(curve.work)
        for seconds in (curve.usual, curve.worst):
            assert [*seconds] == sorted(seconds)
    for name, cost in found.costs.items():
        for figure, value in asdict(cost).items():
            usual = getattr(typical().costs[name], figure)
            assert usual / PLAUSIBLE <= value * (1 + 1e-9)
            assert value <= usual * PLAUSIBLE * (1 + 1e-9)


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8))
def test_ratios_fall_and_keep_their_sum(values: list[float]) -> None:
    fallen = falling(values)
    assert fallen == sorted(fallen, reverse=True)
    assert sum(fallen) == pytest.approx(sum(values))
    if values == sorted(values, reverse=True):
        assert fallen == values


def test_the_extremes_are_around_what_is_typical() -> None:
    low, high = extremes(4)
    for name, cost in typical(4).costs.items():
        for figure, value in asdict(cost).items():
            assert getattr(low.costs[name], figure) <= value <= getattr(high.costs[name], figure)
    for workers, curve in typical(4).curves.items():
        if workers > 1:
            for work in (1e-5, 1e-3, 1e-1):
                less, more = low.curves[workers].at(work), high.curves[workers].at(work)
                assert less.usual <= curve.at(work).usual <= more.usual


def test_what_earlier_code_took_is_forgotten() -> None:
    remember_profile(Tally, PROFILE, source_file(Tally()))
    remember_measured(Tally, 8, {"process ×2": 2e-3})
    remember_measured(Tally, 9, {"serial": 1e-3})
    remember_profile(Tally, replace(PROFILE, step=1e-6), source_file(Tally()))
    assert recall_measured(Tally, 8) == recall_measured(Tally, 9) == {}


@pytest.mark.parametrize("wrong", ["x", None, [], -1, 10**400, float("nan")])
def test_a_wrong_value_makes_a_record_unreadable(wrong: Any, folder: Path) -> None:
    remember_profile(Tally, PROFILE, None)
    (file,) = folder.rglob("profile-*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "step": wrong}))
    assert recall_profile(Tally) is None
    remember_measured(Tally, 8, {"serial": 1e-3})
    (file,) = folder.rglob("measured-*.json")
    for record in ({"serial": [wrong, time.time()]}, {"serial": [1e-3, wrong]}):
        file.write_text(json.dumps(record))
        assert recall_measured(Tally, 8) == {}


@pytest.mark.parametrize("cores", ["x", [], 0, float("nan")])
def test_a_wrong_number_of_cores(cores: Any, measured: list[int], folder: Path) -> None:
    this_machine()
    (file,) = folder.rglob("machine-*.json")
    record = json.loads(file.read_text())
    file.write_text(json.dumps({load: {**one, "cores": cores} for load, one in record.items()}))
    assert recall_machines(typical().cores) == {}


def test_without_a_lock_on_the_interpreter_it_is_another_machine(
    measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A free-threaded Python has the same version as one that is not."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    this_machine()
    another_process()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False)
    this_machine()
    assert len(measured) == 2
