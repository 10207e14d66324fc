"""Snapshots and whole runs in files, which go on in other environments and processes."""

from __future__ import annotations

import contextlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agym
from agym.testing import assert_same
from tests.support.backends import FORK
from tests.support.envs.drifting_envs import Drifting, play
from tests.support.scripts import run


def test_a_snapshot_is_saved_and_loaded(tmp_path: Path) -> None:
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


CONTINUE = """
    import pickle
    import agym
    from pathlib import Path
    from tests.support.envs.drifting_envs import play

    if __name__ == "__main__":
        with agym.load("run.agym") as envs:
            results = [tuple(result) for result in play(envs, 100, seed=2)]
            Path("results").write_bytes(pickle.dumps(results))
"""


@pytest.mark.once
@pytest.mark.parametrize("backend", [FORK, "thread", "serial"])
def test_a_whole_run_goes_on_in_another_process(backend: object, tmp_path: Path) -> None:
    with agym.make("CartPole-v1", 6, autoreset="same_step", backend=backend) as envs:  # type: ignore[arg-type]
        envs.reset(seed=1)
        play(envs, 30, seed=1)
        envs.save(tmp_path / "run.agym")
        once = play(envs, 100, seed=2)
    assert run(tmp_path, CONTINUE, seconds=10) == (0, "", "")
    results = pickle.loads((tmp_path / "results").read_bytes())
    assert_same([tuple(one) for one in once], results)


async def test_a_whole_run_of_async_environments_goes_on_by_another_backend(tmp_path: Path) -> None:
    path = tmp_path / "run.agym"
    async with agym.make_async(lambda: Drifting(), 3, backend=FORK, workers=2) as envs:
        await envs.reset(seed=1)
        await envs.save(path)
        once = [await envs.step([0, 1, 2]) for _ in range(30)]
    restored = agym.load(path, backend="serial")
    assert isinstance(restored, agym.AsyncEnvs)
    async with restored as envs:
        assert envs.backend == "serial"
        assert_same(once, [await envs.step([0, 1, 2]) for _ in range(30)])


def test_only_environments_of_make_are_saved_and_others_have_snapshots(tmp_path: Path) -> None:
    with contextlib.closing(agym.make_vec("CartPole-v1", 2, backend="serial")) as vector:
        vector.reset(seed=1)
        with pytest.raises(agym.UsageError, match="only environments made by"):
            vector.runner.save(tmp_path / "run.agym")
        before = vector.runner.snapshot()
        once = vector.step(np.array([0, 1]))
        vector.runner.restore(before)
        assert_same(once, vector.step(np.array([0, 1])))
        with (
            agym.make("CartPole-v1", 2) as envs,
            pytest.raises(agym.UsageError, match="save the environments that were split"),
        ):
            envs.split(2)[0].save(tmp_path / "run.agym")


# ---------------------------------------------------------------- files that are refused


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a snapshot."""
    path = tmp_path_factory.mktemp("saved") / "whole.agym"
    with agym.make("CartPole-v1", 1) as envs:
        envs.reset(seed=1)
        envs[0].snapshot().save(path)
    return path.read_bytes()


OTHERS = [
    b"", b"\n", b"hello", b"\x00\xff" * 500, b"{}\n", b"[]\n", b'{"agym_snapshot": null}\nx',
    b'{"agym_snapshot": ' + b"[" * 100_000 + b"\n", b'{"agym_snapshot": "\xff"}\n',
]  # fmt: skip
HEAD = b'{"agym_snapshot": %b, "bytes": %d, "crc32": 0}\n'


@pytest.mark.parametrize(
    ("other", "error"),
    [
        *((other, "is not an agym snapshot file$") for other in OTHERS),
        (HEAD % (b"1", 3) + b"ab", "is damaged"),
        (HEAD % (b"99", 0), "by a newer version of agym.*update agym"),
        (b'{"agym_capsule": 1}\n', "is a capsule, not a snapshot: use `agym rerun`$"),
        (b'{"agym_run": 1}\n', r"is a run, not a snapshot: use agym\.load"),
    ],
)
def test_another_file_is_refused(other: bytes, error: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.agym"
    with pytest.raises(agym.UsageError, match="cannot be read"):
        agym.Snapshot.load(path)
    path.write_bytes(content)
    with pytest.raises(agym.UsageError, match=r"not a run: use agym\.Snapshot\.load"):
        agym.load(path)
    path.write_bytes(other)
    with pytest.raises(agym.UsageError, match=error):
        agym.Snapshot.load(path)
    with pytest.raises(agym.UsageTypeError, match="path=None is not a path"):
        agym.Snapshot.load(None)  # type: ignore[arg-type]


def assert_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(agym.UsageError, match=r"is damaged|is not an agym|by a newer version"):
        agym.Snapshot.load(path)


def test_every_truncated_or_longer_file_is_refused(content: bytes, tmp_path: Path) -> None:
    for length in range(len(content)):
        assert_refused(tmp_path / "short.agym", content[:length])
    assert_refused(tmp_path / "long.agym", content + b"\n")


@given(st.integers(0, 99) | st.integers(0, 10**6), st.integers(1, 255))
def test_every_changed_byte_is_noticed(
    content: bytes, tmp_path_factory: pytest.TempPathFactory, place: int, change: int
) -> None:
    """Those of the head, and all others."""
    damaged = bytearray(content)
    damaged[place % len(content)] ^= change
    assert_refused(tmp_path_factory.getbasetemp() / "damaged.agym", bytes(damaged))


# ---------------------------------------------------------------- paths that are refused


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("nowhere/run.agym", "create its folder first"),
        ("file/run.agym", "create its folder first"),
        (".", "is not a regular file"),
        ("pipe", "is not a regular file"),
    ],
)
def test_a_path_that_cannot_be_written_to_is_named(name: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / name
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
    remedy = "raise the limit of file sizes (`ulimit -f unlimited`)"
    expected = f"run.agym cannot be written: File too large; {remedy} ['script.py']\n"
    assert run(tmp_path, script) == (0, expected, "")
