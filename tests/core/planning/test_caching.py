"""What is known of environments is kept, and whatever the cache does is no error."""

from __future__ import annotations

import json
import os
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


@pytest.mark.parametrize("why", ["a file", "no home"])
def test_a_folder_that_cannot_be_written_is_no_error(
    why: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "a file":
        folder.write_text(why)
    else:
        for name in ("XDG_CACHE_HOME", "HOME"):
            monkeypatch.delenv(name)
        monkeypatch.setattr(os, "getuid", lambda: 2**31 - 2)
        with pytest.raises(RuntimeError):
            cache_folder()
    remember_profile(Tally, PROFILE, None)
    remember_measured(Tally, 8, {"serial": 1e-3})
    assert recall_profile(Tally) is None
    assert recall_measured(Tally, 8) == {}


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


def test_records_are_those_of_the_same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same cores, and of a Python with or without a lock on the interpreter."""
    remember_measured(Tally, 8, {"serial": 1e-3})
    others = (
        (caching, "core_numbers", [7]),
        (caching, "quota", 1.5),
        (sys, "_is_gil_enabled", False),
    )
    for module, name, value in others:
        with monkeypatch.context() as patched:
            patched.setattr(module, name, lambda value=value: value, raising=False)
            assert recall_measured(Tally, 8) == {}
    assert recall_measured(Tally, 8) == {"serial": 1e-3}


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
