"""No process and no file outlives a script, however the script or its environments end.

Two seconds are promised on a machine that has time. On a crowded machine it takes longer, so these
tests do not measure the time, but find what never ends. The fixture of all tests looks after
``/dev/shm``.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent

import pytest

from tests.support.patience import patience
from tests.support.scripts import end_session, members, start

each_method = pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
each_moment = pytest.mark.parametrize("delay", [0.0, 0.1, 0.3, 0.6])

# What a script does with its environments; "ready" or "hangs" is the last word that it prints.
DOES = {
    "idle": "print('ready', flush=True); input()",
    "stepping": """
        print('ready', flush=True)
        while True:
            envs.step([0] * 4)
    """,
    "hanging": "envs.step([0, 0, 9, 0])",
    "hanging in C": "envs.set_attr('_in_c', True); envs.step([0, 0, 9, 0])",
    "hanging after a hangup": """
        for pid in {*envs.pid()}:
            os.kill(pid, signal.SIGHUP)
        signal.sigtimedwait([], 1.5)
        envs.step([0, 0, 9, 0])
    """,
}
SYNC = """
    import os
    os.environ["TMPDIR"] = "{folder}/tmp"  # before anything asks for it
    import signal, sys
    from functools import partial
    import agym
    from tests.support.envs.faulty_envs import Hangs
    from tests.support.envs.plain_envs import Counted

    {before}
    setup = {{"backend": agym.backends.Process(start_method="{method}"), "workers": 2}}
    with agym.make({env}, 4, **setup) as envs:
        envs.reset()
{does}
"""
ASYNC = """
    import os
    os.environ["TMPDIR"] = "{folder}/tmp"
    import asyncio, uvloop
    import agym
    from tests.support.envs.plain_envs import Tally

    async def play(envs):
        while True:
            await envs.step([0] * 4)

    async def leave():
        await asyncio.sleep(0.1)
        raise SystemExit(7)

    async def main():
        setup = {{"backend": agym.backends.Process(start_method="{method}"), "workers": 2}}
        async with agym.make_async(Tally, 4, autoreset="next_step", **setup) as envs:
            await envs.reset()
            print("ready", flush=True)
            {does}

    with asyncio.Runner(loop_factory={loop}) as runner:
        runner.run(main())
"""
each_loop = pytest.mark.parametrize("loop", ["asyncio.new_event_loop", "uvloop.new_event_loop"])


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short path: the address of a fork server in it may have a hundred letters."""
    with tempfile.TemporaryDirectory(prefix="left", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextlib.contextmanager
def running(folder: Path, code: str, word: str = "ready") -> Iterator[subprocess.Popen[str]]:
    """Start a script, and wait until it or one of its environments prints a word."""
    (folder / "tmp").mkdir()
    with start(folder, code) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != f"{word}\n":
                pytest.fail(process.communicate(timeout=patience(3))[1])
            yield process
        finally:
            process.kill()
            end_session(process.pid)


def sync(folder: Path, method: str, does: str, before: str = "", env: str = "Hangs") -> str:
    does = indent(dedent(DOES[does]).strip(), " " * 8)
    return SYNC.format(folder=folder, method=method, does=does, before=before, env=env)


def word_of(does: str) -> str:
    return "hangs" if "hanging" in does else "ready"


def assert_nothing_left(process: subprocess.Popen[str], folder: Path, *, files: bool = True) -> str:
    """Wait until processes and files are gone; return what was written to standard error."""
    end = time.monotonic() + patience()
    while (left := members(process.pid)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not left, f"processes that stay: {left}"
    assert not files or [*(folder / "tmp").iterdir()] == []
    _, err = process.communicate(timeout=patience(3))
    assert "resource_tracker" not in err
    assert "leaked" not in err
    return err


def assert_interrupted(process: subprocess.Popen[str], folder: Path) -> str:
    """Assert that Ctrl-C has ended the script, without a word of agym's workers or tasks."""
    err = assert_nothing_left(process, folder)
    assert process.returncode == -signal.SIGINT
    assert err.splitlines().count("KeyboardInterrupt") == 1, err
    assert "agym-" not in err
    return err


# ---------------------------------------------------------------- sudden ends


@pytest.mark.once
@pytest.mark.parametrize("does", ["idle", "stepping", "hanging", "hanging in C"])
@each_method
def test_a_killed_script(method: str, does: str, tmp_path: Path) -> None:
    with running(tmp_path, sync(tmp_path, method, does), word_of(does)) as process:
        process.kill()
        assert assert_nothing_left(process, tmp_path) == ""


@pytest.mark.full
def test_a_killed_script_that_ignores_hangups(tmp_path: Path) -> None:
    """As under ``nohup``: the workers survive a hangup, but not the script."""
    ignores = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    code = sync(tmp_path, "spawn", "hanging after a hangup", ignores)
    with running(tmp_path, code, "hangs") as process:
        process.kill()
        assert assert_nothing_left(process, tmp_path) == ""


@pytest.mark.full
@each_moment
@each_method
def test_a_script_killed_while_its_workers_start(method: str, delay: float, tmp_path: Path) -> None:
    code = sync(tmp_path, method, "idle", "print('starts', flush=True)")
    with running(tmp_path, code, "starts") as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=delay)
        process.kill()
        # The fork server's folder lives for a moment, in which only that process knows it.
        err = assert_nothing_left(process, tmp_path, files=method != "forkserver")
        # A process of multiprocessing that was not told yet what to do complains about it.
        told = "in spawn_main" in err or "spawn._main(" in err or "in recvfds" in err
        if method == "fork" or not told:
            assert err == ""
        else:
            assert err.count("Traceback") == 1
            assert re.search(r"\nEOFError(: Ran out of input)?\n\Z", err)


@pytest.mark.full
@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("", -signal.SIGTERM),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))", 5),
    ],
)
@each_method
def test_a_terminated_script(method: str, before: str, code: int, tmp_path: Path) -> None:
    with running(tmp_path, sync(tmp_path, method, "stepping", before)) as process:
        process.terminate()
        assert assert_nothing_left(process, tmp_path) == ""
        assert process.returncode == code


@pytest.mark.once
@each_method
def test_environments_are_closed_when_the_script_is_killed(method: str, tmp_path: Path) -> None:
    code = sync(tmp_path, method, "idle", env="partial(Counted, 'log')")
    with running(tmp_path, code) as process:
        process.kill()
        assert_nothing_left(process, tmp_path)
    assert (tmp_path / "log").read_text().count("closed") == 4


# ---------------------------------------------------------------- orderly ends


@pytest.mark.once
@pytest.mark.parametrize(
    "does",
    [
        "idle",
        "stepping",
        # The script gives the environment its time to close.
        pytest.param("hanging", marks=pytest.mark.full),
        pytest.param("hanging in C", marks=pytest.mark.full),
    ],
)
@each_method
def test_ctrl_c(method: str, does: str, tmp_path: Path) -> None:
    with running(tmp_path, sync(tmp_path, method, does), word_of(does)) as process:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=patience(3))
        assert_interrupted(process, tmp_path)


@pytest.mark.full
@each_moment
def test_ctrl_c_while_workers_start(delay: float, tmp_path: Path) -> None:
    """The workers print nothing about it, whenever it comes."""
    # Ctrl-C in an import is shown by Python in two parts, a KeyError and what it was handled for.
    imports = "import agym.api.make, agym.core.backends.process.process_pool"
    code = sync(tmp_path, "spawn", "idle", f"{imports}; print('starts', flush=True)")
    with running(tmp_path, code, "starts") as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=delay)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=patience(3))
        assert assert_interrupted(process, tmp_path).count("Traceback") == 1


@pytest.mark.full
@each_loop
@each_method
def test_ctrl_c_in_a_task(method: str, loop: str, tmp_path: Path) -> None:
    does = "await asyncio.create_task(play(envs))"
    code = ASYNC.format(folder=tmp_path, method=method, does=does, loop=loop)
    with running(tmp_path, code) as process:
        os.killpg(process.pid, signal.SIGINT)
        assert_interrupted(process, tmp_path)


@pytest.mark.full
@each_loop
@each_method
def test_system_exit_in_a_task(method: str, loop: str, tmp_path: Path) -> None:
    does = "await asyncio.gather(play(envs), leave())"
    code = ASYNC.format(folder=tmp_path, method=method, does=does, loop=loop)
    with running(tmp_path, code) as process:
        process.wait(timeout=patience(3))
        # asyncio itself may complain that nobody looked at the task's exception.
        assert "agym-" not in assert_nothing_left(process, tmp_path)
        assert process.returncode == 7
