"""How many cores this machine grants: by affinity and by cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agym.core._system import cpus
from agym.core._system.cpus import HomeCore, available_cores, quota
from tests.support.skips import needs_linux

pytestmark = needs_linux


def test_available_cores_follow_the_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    assert 1 <= available_cores() <= len(allowed)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def v1(quota: int, folder: str = "cpu") -> dict[str, str]:
    return {
        f"{folder}/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/cpu.cfs_period_us": "100000\n"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cgroup", "files", "cpus"),
    [
        ("", {"cpu.max": "150000 100000\n"}, 1.5),
        ("", {"cpu.max": "max 100000\n"}, float("inf")),
        ("", v1(50000), 0.5),
        ("", v1(-1), float("inf")),
        ("", {}, float("inf")),
        ("0::/a/b\n", {"a/b/cpu.max": "300000 100000", "a/cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000", "a/cpu.max": "max 100000"}, 1.0),
        ("0::/a\n", {"b/cpu.max": "100000 100000"}, float("inf")),
        ("0::/../c\n", {"cpu.max": "200000 100000"}, 2.0),
        ("3:cpuset:/x\n2:cpu,cpuacct:/a\n0::/\n", v1(250000, "cpu/a"), 2.5),
    ],
    ids=[
        "v2", "v2-max", "v1", "v1-none", "no-cgroup", "parent", "own", "another's", "outside",
        "v1-own",
    ],
)  # fmt: skip
def test_quotas_of_all_cgroups_around_a_process(
    cgroup: str, files: dict[str, str], cpus: float, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    if cgroup:
        own.write_text(cgroup)
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert quota(tmp_path / "groups", own) == cpus


# ---------------------------------------------------------------- a core of one's own


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The affinities that are set, of a thread that may use the cores 2, 3 and 5."""
    found: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3, 5})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: found.append(cores))
    return found


def on_core(monkeypatch: pytest.MonkeyPatch, core: int) -> None:
    monkeypatch.setattr(cpus, "current_core", lambda: core)


@pytest.mark.parametrize("all_cores", [True, False])
def test_it_returns_no_more_often_than_needed(
    monkeypatch: pytest.MonkeyPatch, moves: list[set[int]], all_cores: bool
) -> None:
    pause = cpus.CROWDED_RETURN_SECONDS if all_cores else cpus.RETURN_SECONDS
    on_core(monkeypatch, 5)
    home = HomeCore(0, all_cores=all_cores)
    for now, times in ((10.0, 1), (10.0 + 0.9 * pause, 1), (10.0 + 1.1 * pause, 2)):
        home(now)
        assert moves == [{2}, {2, 3, 5}] * times
    on_core(monkeypatch, 2)
    home(10.0 + 9 * pause)
    assert len(moves) == 4  # it is there


def test_it_follows_when_it_is_given_other_cores(
    monkeypatch: pytest.MonkeyPatch, moves: list[set[int]]
) -> None:
    on_core(monkeypatch, 5)
    home = HomeCore(1, all_cores=True)
    home(10.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 7})
    home(11.0)
    assert moves == [{3}, {2, 3, 5}, {7}, {5, 7}]


def test_cores_that_are_taken_away_meanwhile_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(pid: int, cores: set[int]) -> None:
        raise OSError(22, "Invalid argument")

    on_core(monkeypatch, -2)
    monkeypatch.setattr(os, "sched_setaffinity", fails)
    HomeCore(0, all_cores=True)(10.0)


def test_a_thread_is_really_moved() -> None:
    allowed = os.sched_getaffinity(0)
    for position, core in enumerate(sorted(allowed)):
        home, there = HomeCore(position, all_cores=True), False
        for attempt in range(1, 200):  # on a busy machine it may be moved off again at once
            home(float(attempt))
            there = there or cpus.current_core() == core
        assert there
    assert os.sched_getaffinity(0) == allowed
