"""Snapshots and whole runs in files, which go on in other environments and processes."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.testing import assert_same
from tests.support.backends import FORK
from tests.support.envs.drifting_envs import Drifting, assert_same_steps, play
from tests.support.patience import patience
from tests.support.scripts import run

BACKENDS = [
    pytest.param({"backend": "serial"}, id="serial"),
    pytest.param({"backend": "thread"}, id="thread"),
    pytest.param({"backend": FORK, "workers": 2}, id="process"),
]


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "middle.agym"
    with agym.make(Drifting, 2) as envs:
        envs.reset(seed=1)
        play(envs, 9, seed=1)
        envs[1].snapshot().save(path)
        once = envs[1].step(2)
        loaded = agym.Snapshot.load(path)
        assert loaded.versions["agym"]
        assert "step 9: the attributes" in str(loaded)
        envs[0].restore(loaded)
        assert_same(envs[0].step(2), once)
    assert b'"agym_snapshot": 1' in path.read_bytes().partition(b"\n")[0]


def test_what_is_no_file_of_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "middle.agym"
    with pytest.raises(agym.UsageError, match="cannot be read"):
        agym.Snapshot.load(path)
    path.write_bytes(b"hello")
    with pytest.raises(agym.UsageError, match="is not an agym snapshot"):
        agym.Snapshot.load(path)
    with agym.make("CartPole-v1", 1) as envs:
        envs.reset(seed=1)
        envs[0].snapshot().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(agym.UsageError, match="damaged"):
        agym.Snapshot.load(path)
    path.write_bytes(whole.replace(b'"agym_snapshot": 1', b'"agym_snapshot": 9'))
    with pytest.raises(agym.UsageError, match="update agym"):
        agym.Snapshot.load(path)


CONTINUE = """
import pickle, sys
import numpy as np
import agym

if __name__ == "__main__":
    with agym.load(sys.argv[1]) as envs:
        rng = np.random.default_rng(2)
        results = [envs.step(rng.integers(2, size=len(envs)).tolist()) for _ in range(100)]
        with open(sys.argv[2], "wb") as file:
            pickle.dump([tuple(result) for result in results], file)
"""


@pytest.mark.once
@pytest.mark.parametrize("options", BACKENDS)
def test_a_whole_run_goes_on_in_another_process(options: dict[str, Any], tmp_path: Path) -> None:
    script, saved, results = tmp_path / "go_on.py", tmp_path / "run.agym", tmp_path / "results"
    script.write_text(CONTINUE)
    with agym.make("CartPole-v1", 6, autoreset="same_step", **options) as envs:
        envs.reset(seed=1)
        play(envs, 30, seed=1)
        envs.save(saved)
        once = play(envs, 100, seed=2)
    subprocess.run([sys.executable, script, saved, results], check=True, timeout=patience(10))
    assert_same_steps([tuple(one) for one in once], pickle.loads(results.read_bytes()))


async def test_a_whole_run_of_async_environments(tmp_path: Path) -> None:
    path = tmp_path / "run.agym"
    async with agym.make_async(lambda: Drifting(), 3, backend=FORK, workers=2) as envs:
        await envs.reset(seed=1)
        await envs.save(path)
        once = [await envs.step([0, 1, 2]) for _ in range(30)]
    restored = agym.load(path, backend="serial")
    assert isinstance(restored, agym.AsyncEnvs)
    async with restored as envs:
        assert envs.backend == "serial"
        assert_same_steps(once, [await envs.step([0, 1, 2]) for _ in range(30)])


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "run.agym"
    with agym.make("CartPole-v1", 2) as envs:
        envs.reset(seed=1)
        with pytest.raises(agym.UsageError, match="save the environments that were split"):
            envs.split(2)[0].save(path)
        envs[0].snapshot().save(path)
    with pytest.raises(agym.UsageError, match=r"not a run: use agym\.Snapshot\.load"):
        agym.load(path)
    with contextlib.closing(agym.make_vec("CartPole-v1", 2)) as vector:
        vector.reset(seed=1)
        with pytest.raises(agym.UsageError, match="only environments made by"):
            vector.runner.save(path)
        before = vector.runner.snapshot()
        once = vector.step(np.array([0, 1]))
        vector.runner.restore(before)
        assert_same(once, vector.step(np.array([0, 1])))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "is not an agym snapshot"),
        (b'{"agym_snapshot": "x", "bytes": 1, "crc32": 0}\n', "is not an agym snapshot"),
        (b'{"agym_snapshot": 1, "bytes": 3, "crc32": 0}\nab', "is damaged"),
        (b'{"agym_snapshot": 99, "bytes": 0, "crc32": 0}\n', "by a newer version of agym"),
        (b'{"agym_run": 1}\n', r"is a run, not a snapshot: use agym\.load"),
    ],
)
def test_other_files(content: bytes, error: str, tmp_path: Path) -> None:
    path = tmp_path / "file.agym"
    path.write_bytes(content)
    with pytest.raises(agym.UsageError, match=error):
        agym.Snapshot.load(path)
    with pytest.raises(agym.UsageTypeError, match="path=None is not a path"):
        agym.Snapshot.load(None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a snapshot."""
    path = tmp_path_factory.mktemp("saved") / "whole.agym"
    with agym.make("CartPole-v1", 1) as envs:
        envs.reset(seed=1)
        envs[0].snapshot().save(path)
    return path.read_bytes()


def assert_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(agym.UsageError, match=r"is damaged|is not an agym|by a newer version"):
        agym.Snapshot.load(path)


@pytest.mark.full
def test_every_changed_bit_of_the_head_and_one_of_each_other_byte_is_noticed(
    content: bytes, tmp_path: Path
) -> None:
    head = content.index(b"\n")
    for place in range(len(content)):
        for bit in range(8) if place <= head else [place % 8]:
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            assert_refused(tmp_path / "damaged.agym", bytes(damaged))


def test_every_truncated_or_longer_file_is_refused(content: bytes, tmp_path: Path) -> None:
    for length in range(len(content)):
        assert_refused(tmp_path / "short.agym", content[:length])
    assert_refused(tmp_path / "long.agym", content + b"\n")


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_every_changed_byte_is_noticed(
    content: bytes, tmp_path_factory: pytest.TempPathFactory, place: int, change: int
) -> None:
    damaged = bytearray(content)
    damaged[place % len(content)] ^= change
    assert_refused(tmp_path_factory.getbasetemp() / "damaged.agym", bytes(damaged))


def obstructed(folder: Path, obstacle: str) -> tuple[Path, str]:
    """Return a path that cannot be written to, and what helps."""
    match obstacle:
        case "no folder":
            return folder / "nowhere" / "run.agym", "create its folder first"
        case "a file as a folder":
            (folder / "file").write_text("")
            return folder / "file" / "run.agym", "create its folder first"
        case "a folder":
            return folder, "is not a regular file"
        case "a pipe":
            os.mkfifo(folder / "pipe")
            return folder / "pipe", "is not a regular file"
    raise AssertionError(obstacle)


@pytest.mark.parametrize("obstacle", ["no folder", "a file as a folder", "a folder", "a pipe"])
def test_a_path_that_cannot_be_written_to_is_named(obstacle: str, tmp_path: Path) -> None:
    path, remedy = obstructed(tmp_path, obstacle)
    before = sorted(tmp_path.iterdir())
    with agym.make("CartPole-v1", 1) as envs:
        envs.reset(seed=1)
        for save in (envs.save, envs[0].snapshot().save):
            with pytest.raises(agym.UsageError, match=remedy) as caught:
                save(path)
            assert str(path) in str(caught.value)
        with pytest.raises(agym.UsageTypeError, match="path=None is not a path"):
            envs.save(None)  # type: ignore[arg-type]
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_the_system_does_not_hold_is_left_out(tmp_path: Path) -> None:
    script = """
        import os, resource
        import agym

        with agym.make("CartPole-v1", 1) as envs:
            envs.reset(seed=1)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
            try:
                envs.save("run.agym")
            except agym.UsageError as error:
                print(error, os.listdir())
    """
    code, out, err = run(tmp_path, script)
    assert (code, err) == (0, "")
    assert out == (
        "run.agym cannot be written: File too large; raise the limit of file sizes"
        " (`ulimit -f unlimited`) ['script.py']\n"
    )
