"""What the tests themselves promise: nothing outlives them, and each fails alone."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from tests.support.patience import patience
from tests.support.scripts import ROOT

pytestmark = pytest.mark.full  # each waits for a time limit, or for a whole run

# What a test starts: a script in a session of its own, a forked child, and workers of agym's.
STARTS = """
    import os, signal, subprocess, sys, threading, time
    from pathlib import Path
    import pytest
    import agym
    from tests.support.envs.plain_envs import Tally

    class Sleeps(Tally):
        def step(self, action):
            time.sleep(1000)

    def start(folder):
        script = [sys.executable, "-c", "import time; time.sleep(1000)"]
        pids = [subprocess.Popen(script, start_new_session=True).pid]
        child = os.fork()
        if child == 0:
            time.sleep(1000)
        envs = agym.make(Tally, 2, backend="process", workers=2)
        pids += [child, os.getpid(), *(worker.pid for worker in envs.stats().workers)]
        Path(folder, f"{os.getpid()}.pids").write_text(" ".join(map(str, pids)))
        return envs
"""


@contextmanager
def begin(folder: Path, tests: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run tests as this folder's are run, with the same plugins."""
    (folder / "test_it.py").write_text(dedent(STARTS) + dedent(tests))
    plugins = ["-p", "tests.support.guardian", "-p", "tests.support.limits"]
    settings = ["-o", "asyncio_default_fixture_loop_scope=function", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "--timeout=120", *plugins, *settings, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "FOLDER": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        try:
            yield run
        finally:
            run.kill()


def started(folder: Path) -> list[psutil.Process]:
    """What still lives of all that was started, after it had time to end."""
    pids = [int(pid) for path in folder.glob("*.pids") for pid in path.read_text().split()]
    assert len(pids) >= 5
    left = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.append(psutil.Process(pid))
    return psutil.wait_procs(left, timeout=patience(5))[1]


def test_a_test_that_exceeds_its_limit_fails_alone(tmp_path: Path) -> None:
    tests = """
        @pytest.mark.timeout(1)
        def test_hangs():
            threading.Thread(target=idle_in_a_thread, daemon=True).start()
            with agym.make(Sleeps, 2, backend="process", workers=2) as envs:
                envs.reset()
                envs.step([0, 0])

        def idle_in_a_thread():
            time.sleep(1000)

        def test_comes_after_it():
            pass
    """
    with begin(tmp_path, tests, "-n", "1") as run:
        out, _ = run.communicate(timeout=patience(30))
    assert "the test exceeded its limit" in out
    assert "1 failed, 1 passed" in out
    assert "in idle_in_a_thread" in out  # the stack of another thread
    of_workers = re.findall(r'test_it.py", line \d+ in step$', out, re.MULTILINE)
    assert len(of_workers) == 2
    assert run.returncode == 1


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "distributed"])
def test_a_run_that_leaves_a_file_in_the_checkout_fails(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    tests = """
        @pytest.mark.parametrize("name", ["__pycache__/cached", "build/made", "left.log"])
        def test_leaves(name):
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).touch()
    """
    with begin(tmp_path, tests, "-p", "tests.support.leftovers", *options) as run:
        out, _ = run.communicate(timeout=patience(30))
    assert "3 passed" in out
    assert re.findall("left in the checkout: (.*)", out) == [str(tmp_path / "left.log")]
    assert run.returncode == 1


@pytest.mark.parametrize("how", ["signal", "crash"])
def test_a_run_that_loses_a_worker_ends_and_says_so(tmp_path: Path, how: str) -> None:
    tests = f"""
        def test_loses_it():
            envs = start(os.environ["FOLDER"])
            if {how!r} == "crash":
                os._exit(1)
            os.kill(os.getpid(), signal.SIGKILL)

        def test_comes_after_it():
            pass
    """
    with begin(tmp_path, tests, "-n", "1") as run:
        out, _ = run.communicate(timeout=patience(30))
    assert "crashed while running" in out
    assert "1 failed, 1 passed" in out
    assert run.returncode == 1
    assert not started(tmp_path)


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "distributed"])
def test_a_run_that_is_killed_leaves_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    tests = """
        def test_waits_for_its_end():
            envs = start(os.environ["FOLDER"])
            Path(os.environ["FOLDER"], "ready").open("w").close()
            time.sleep(1000)
    """
    os.mkfifo(tmp_path / "ready")
    with begin(tmp_path, tests, *options) as run:
        (tmp_path / "ready").open().close()  # the other end is opened when all is running
        run.send_signal(signal.SIGKILL)
        assert not started(tmp_path)
