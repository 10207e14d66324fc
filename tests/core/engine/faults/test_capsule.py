"""Capsules: what is written is read again. How files are refused is in ``test_saving.py``."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import agym
from agym.core.engine.faults.capsule import describe_factory, read_capsule, write_capsule
from agym.testing.scripted import Mute, Unpicklable
from tests.support.capsules import a_capsule, with_head
from tests.support.envs.plain_envs import Tally
from tests.support.patience import patience
from tests.support.scripts import run


class Hostile:
    """Nothing can be done with it."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __reduce__(self) -> Any:
        raise Mute


class Unreadable:
    """It pickles, and cannot be unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(5).bit_generator.state
    actions = [{"force": np.ones(3, np.float32), "gear": k} for k in range(5)]
    options = {"start": np.arange(3), "name": "ß"}
    capsule = a_capsule(
        rng=rng, actions=actions, options=options, error="Fehler: ü\ud800\n", complete=False,
        arguments=("add", (1,), {"b": 2}), seed=np.int64(7), episode=None,
    )  # fmt: skip
    read = read_capsule(write_capsule(tmp_path, capsule))
    assert read.factory is not None
    assert read.factory().length == 9
    assert read.start.rng == rng
    assert read.start.options is not None
    assert read.start.options["start"].tolist() == [0, 1, 2]
    assert [action["force"].tolist() for action in read.actions] == [[1.0] * 3] * 5
    for name in ("autoreset", "arguments", "complete", "missing", "versions"):
        assert getattr(read, name) == getattr(capsule, name), name
    assert read.fault == capsule.fault
    assert read.start.seed == 7
    assert type(read.start.seed) is int
    assert read.factory_text == describe_factory(capsule.factory)


def test_the_first_line_can_be_read_by_a_human(tmp_path: Path) -> None:
    path = write_capsule(tmp_path, a_capsule(options={"a": 1}))
    head = ["head", "-1", path]
    line = subprocess.run(head, capture_output=True, timeout=patience(), check=True).stdout
    head = json.loads(line)
    assert head["factory"] == "tests.support.envs.plain_envs.Tally(length=9)"
    assert head["fault"]["error"] == "ValueError: boom in step"
    assert (head["seed"], head["actions"], head["fault"]["action"]) == (7, 2, "9")
    assert head["options"] == "{'a': 1}"
    assert head["complete"] is True


def test_it_is_small_and_private_and_alone(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "on the way"
    actions = list(np.random.default_rng(0).integers(0, 4, 10_000))
    path = write_capsule(folder, a_capsule(actions=actions))
    assert [*folder.iterdir()] == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.name.startswith("env3-step-")
    assert path.suffix == ".agym"
    assert path.stat().st_size < 50_000
    assert list(read_capsule(path).actions) == actions
    more = {write_capsule(folder, a_capsule(operation="../../x y")) for _ in range(20)}
    assert {*folder.iterdir()} == {path, *more}
    assert len(more) == 20


# ---------------------------------------------------------------- what cannot be pickled


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        ({"factory": partial(Tally, threading.Lock())}, "factory"),
        ({"actions": [1, threading.Lock()]}, "actions"),
        ({"actions": [Hostile()]}, "actions"),
        ({"action": Unpicklable("no")}, "action"),
        ({"options": {"a": Hostile()}}, "options"),
        ({"action": Unreadable()}, "action"),
    ],
    ids=["factory", "lock", "hostile", "exception", "options", "unreadable"],
)
def test_what_cannot_be_pickled_is_left_out_and_named(
    change: dict[str, Any], lacks: str, tmp_path: Path
) -> None:
    read = read_capsule(write_capsule(tmp_path, a_capsule(**change)))
    assert [reason.split(" (")[0] for reason in read.missing] == [lacks]
    assert not read.complete
    assert read.fault.error == "ValueError: boom in step"
    if lacks == "factory":
        assert read.factory is None
        assert read.factory_text.startswith(
            "tests.support.envs.plain_envs.Tally(<unlocked _thread.lock"
        )
        assert read.actions == [1, 2]
    else:
        assert read.factory is not None


def test_any_factory_can_be_described() -> None:
    assert "lambda" in describe_factory(lambda: Tally())
    assert "Hostile" in describe_factory(Hostile())
    spec = gymnasium.spec("CartPole-v1")
    factory = partial(partial(gymnasium.make, spec, render_mode="ansi"), disable_env_checker=True)
    text = "gymnasium.make('CartPole-v1', render_mode='ansi', disable_env_checker=True)"
    assert describe_factory(factory) == text


def test_a_lambda_is_pickled_by_value(tmp_path: Path) -> None:
    length = 5
    read = read_capsule(write_capsule(tmp_path, a_capsule(factory=lambda: Tally(length=length))))
    assert read.factory is not None
    assert read.factory().length == 5


# ---------------------------------------------------------------- elsewhere


def test_code_for_another_python_is_not_run(tmp_path: Path) -> None:
    by_value = with_head(
        write_capsule(tmp_path, a_capsule(factory=lambda: Tally())), versions={"python": "3.1.0"}
    )
    read = read_capsule(by_value)
    assert read.factory is None
    assert "needs Python 3.1" in read.missing[0]
    by_name = with_head(write_capsule(tmp_path, a_capsule()), versions={"python": "3.1.0"})
    assert read_capsule(by_name).factory is not None


def test_modules_are_found_where_the_writer_found_them(tmp_path: Path) -> None:
    """A module that is gone since then is named."""
    module = tmp_path / "kitchen.py"
    module.write_text("from tests.support.envs.plain_envs import Tally\nclass Oven(Tally): pass\n")
    code = """
        from tests.support.capsules import a_capsule
        from agym.core.engine.faults.capsule import write_capsule
        from kitchen import Oven
        print(write_capsule("faults", a_capsule(factory=Oven)))
    """
    status, out, err = run(tmp_path, code)
    assert (status, err) == (0, "")
    before = [*sys.path]
    try:
        read = read_capsule(tmp_path / out.strip())
        assert read.factory is not None
        assert type(read.factory()).__name__ == "Oven"
        assert sys.path == [*before, os.fspath(tmp_path)]
        sys.path[:] = before
        del sys.modules["kitchen"]
        module.unlink()
        read = read_capsule(tmp_path / out.strip())
        assert read.factory is None
        assert "No module named 'kitchen'" in read.missing[0]
    finally:
        sys.path[:] = before
        sys.modules.pop("kitchen", None)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"agym_snapshot": 1}\n', r"not a capsule: use agym\.Snapshot\.load$"),
        (b"hello", "is not an agym capsule file$"),
    ],
)
def test_other_files_are_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(agym.UsageError, match=words):
        read_capsule(path)
