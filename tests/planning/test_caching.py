"""What this machine costs is measured once, and whatever the cache does is no error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from agym.api.auto import transport
from agym.api.auto.transport import PLAUSIBLE, extremes, measure_transport, this_machine, typical
from agym.errors import UsageError
from agym.planning.caching import (
    cache_folder,
    key_of,
    recall,
    recall_profile,
    remember,
    remember_profile,
    source_file,
)
from agym.planning.model import Profile, Transport
from tests.support.envs.plain_envs import Tally

PROFILE = Profile("Tally", 0.1, 0.2, 0.3, 0.4, True, 5, 6, False)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    this_machine.cache_clear()
    yield tmp_path / "agym"
    this_machine.cache_clear()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the machine was measured."""
    calls: list[int] = []

    def measure(cores: int) -> Transport:
        calls.append(cores)
        return typical()

    monkeypatch.setattr(transport, "measure_transport", measure)
    return calls


def test_this_machine_is_measured_once(measured: list[int]) -> None:
    first = this_machine()
    assert this_machine() is first
    this_machine.cache_clear()  # another process
    assert this_machine() == first
    assert len(measured) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"costs": {"serial": {"batch": 1}}}'])
def test_a_file_that_cannot_be_read_is_written_anew(
    measured: list[int], folder: Path, text: str
) -> None:
    this_machine()
    (file,) = folder.iterdir()
    good = file.read_text()
    file.write_text(text)
    this_machine.cache_clear()
    this_machine()
    assert len(measured) == 2
    assert file.read_text() == good


def test_a_folder_that_cannot_be_written_is_no_error(measured: list[int], folder: Path) -> None:
    folder.write_text("a file")
    this_machine()
    this_machine.cache_clear()
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
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def fails(cores: int) -> Transport:
        raise UsageError("worker processes need something")

    monkeypatch.setattr(transport, "measure_transport", fails)
    assert this_machine() == typical()
    assert not folder.exists()


def test_nothing_is_left_behind_when_a_record_cannot_be_written(folder: Path) -> None:
    with pytest.raises(TypeError):
        remember("profile", "key", {"what": object()})
    assert [*folder.iterdir()] == []


def test_records_come_back_as_they_were() -> None:
    remember("profile", "key", {"a": 1.5})
    assert recall("profile", "key") == {"a": 1.5}
    assert recall("transport", "key") is None
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


@pytest.mark.full
def test_a_machine_is_measured_with_all_its_backends() -> None:
    found: Any = measure_transport(2)
    assert found.costs.keys() == typical().costs.keys()
    for name, cost in found.costs.items():
        for figure, value in asdict(cost).items():
            usual = getattr(typical().costs[name], figure)
            assert usual / PLAUSIBLE <= value * (1 + 1e-9)
            assert value <= usual * PLAUSIBLE * (1 + 1e-9)


def test_the_extremes_are_around_what_is_typical() -> None:
    low, high = extremes(2)
    for name, cost in typical(2).costs.items():
        for figure, value in asdict(cost).items():
            assert getattr(low.costs[name], figure) <= value <= getattr(high.costs[name], figure)
            assert getattr(low.costs[name], figure) >= 0.0
