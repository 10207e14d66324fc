"""How many cores this machine grants: by affinity and by cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agym._system.cpus import _quota, available_cores


def test_available_cores_follow_the_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    assert 1 <= available_cores() <= len(allowed)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, float("inf")),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, float("inf")),
        ({}, float("inf")),
    ],
    ids=["v2", "v2-max", "v1", "v1-none", "no-cgroup"],
)
def test_quotas_of_both_cgroup_versions(files: dict[str, str], cpus: float, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert _quota(tmp_path, tmp_path / "none") == cpus


@pytest.mark.parametrize(
    ("cgroup", "files", "cpus"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "300000 100000", "a/cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000", "a/cpu.max": "max 100000"}, 1.0),
        ("0::/a\n", {"b/cpu.max": "100000 100000"}, float("inf")),
        ("0::/../c\n", {"cpu.max": "200000 100000"}, 2.0),
        (
            "3:cpuset:/x\n2:cpu,cpuacct:/a\n0::/\n",
            {"cpu/a/cpu.cfs_quota_us": "250000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            2.5,
        ),
    ],
    ids=["parent", "own", "another's", "outside", "v1"],
)
def test_quotas_of_all_cgroups_around_a_process(
    cgroup: str, files: dict[str, str], cpus: float, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.write_text(cgroup)
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert _quota(tmp_path / "groups", own) == cpus
