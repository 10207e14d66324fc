"""What is known of environments is kept, and whatever the cache does is no error."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agym.core.planning import caching
from agym.core.planning.caching import (
    cache_folder,
    recall_measured,
    recall_profile,
    remember_measured,
    remember_profile,
    source_file,
)
from agym.core.planning.model import Profile
from tests.support.envs.plain_envs import Tally

PROFILE = Profile("Tally", 0.1, 0.2, 0.3, 0.4, 0.5)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "agym"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"profile": {}}', '{"runs": []}'])
def test_a_file_that_cannot_be_read_is_written_anew(folder: Path, text: str) -> None:
    remember_profile(Tally, PROFILE, None)
    (file,) = folder.iterdir()
    good = file.read_text()
    file.write_text(text)
    assert recall_profile(Tally) is None
    assert recall_measured(Tally, 8) == {}
    remember_measured(Tally, 8, {"serial": 1e-3})
    assert recall_measured(Tally, 8) == {"serial": 1e-3}
    remember_profile(Tally, PROFILE, None)
    assert file.read_text() == good


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path) -> None:
    folder.write_text("a file")
    remember_profile(Tally, PROFILE, None)
    remember_measured(Tally, 8, {"serial": 1e-3})
    assert recall_profile(Tally) is None
    assert recall_measured(Tally, 8) == {}
    assert folder.read_text() == "a file"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(RuntimeError):
        cache_folder()
    remember_profile(Tally, PROFILE, None)
    assert recall_profile(Tally) is None


def test_nothing_is_left_behind_when_a_record_cannot_be_written(folder: Path) -> None:
    with pytest.raises(TypeError):
        remember_measured(Tally, 8, {"what": object()})  # type: ignore[dict-item]
    assert [*folder.iterdir()] == []


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


def test_measured_times_are_those_of_the_same_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_measured(Tally, 8, {"serial": 1e-3})
    for name, value in (("core_numbers", [7]), ("quota", 1.5)):
        with monkeypatch.context() as patched:
            patched.setattr(caching, name, lambda value=value: value)
            assert recall_measured(Tally, 8) == {}
    assert recall_measured(Tally, 8) == {"serial": 1e-3}


def test_times_and_a_profile_are_kept_in_one_file(folder: Path) -> None:
    remember_profile(Tally, PROFILE, None)
    remember_measured(Tally, 8, {"serial": 1e-3})
    assert recall_profile(Tally) == PROFILE
    assert len([*folder.iterdir()]) == 1


def test_what_earlier_code_took_is_forgotten() -> None:
    remember_profile(Tally, PROFILE, source_file(Tally()))
    remember_measured(Tally, 8, {"process ×2": 2e-3})
    remember_measured(Tally, 9, {"serial": 1e-3})
    remember_profile(Tally, replace(PROFILE, step=1e-6), source_file(Tally()))
    assert recall_measured(Tally, 8) == recall_measured(Tally, 9) == {}


@pytest.mark.parametrize("wrong", ["x", None, [], -1, 10**400, float("nan")])
def test_a_wrong_value_makes_a_record_unreadable(wrong: Any, folder: Path) -> None:
    remember_profile(Tally, PROFILE, None)
    remember_measured(Tally, 8, {"serial": 1e-3})
    (file,) = folder.iterdir()
    good = json.loads(file.read_text())
    file.write_text(json.dumps({**good, "profile": {**good["profile"], "step": wrong}}))
    assert recall_profile(Tally) is None
    for record in ({"serial": [wrong, time.time()]}, {"serial": [1e-3, wrong]}):
        file.write_text(json.dumps({**good, "runs": dict.fromkeys(good["runs"], record)}))
        assert recall_measured(Tally, 8) == {}


def test_without_a_lock_on_the_interpreter_it_is_another_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A free-threaded Python has the same version as one that is not."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    remember_profile(Tally, PROFILE, None)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False)
    assert recall_profile(Tally) is None
