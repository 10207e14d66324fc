"""Whatever way a script or its environments end, nothing of them stays.

Two seconds are promised, on a machine that has time for it. On a crowded one it takes longer, so
these tests do not look at the time, but for what never ends. That nothing stays in ``/dev/shm`` is
looked after by the fixture of all tests.
"""

from __future__ import annotations

import contextlib
import os
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

METHODS = ("spawn", "forkserver", "fork")
each_method = pytest.mark.parametrize("method", METHODS)

# What a script does once its environments are there; "ready" is the last that it says.
DOES = {
    "idle": "print('ready', flush=True); input()",
    "stepping": """
        print('ready', flush=True)
        while True:
            envs.step([0] * 4)
    """,
    "hanging": "envs.step([0, 0, 9, 0])",
}
SYNC = """
    import os
    os.environ["TMPDIR"] = "{folder}/tmp"  # before anything asks for it
    import signal, sys
    from functools import partial
    import agym
    from tests.support.envs.faulty_envs import Hangs

    {before}
    setup = {{"backend": agym.backends.Process(start_method="{method}"), "workers": 2}}
    with agym.make(partial(Hangs, in_c={in_c}), 4, **setup) as envs:
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

    async def main():
        setup = {{"backend": agym.backends.Process(start_method="{method}"), "workers": 2}}
        async with agym.make_async(Tally, 4, autoreset="next_step", **setup) as envs:
            await envs.reset()
            print("ready", flush=True)
            {does}

    with asyncio.Runner(loop_factory={loop}) as runner:
        runner.run(main())
"""
LOOPS = ("asyncio.new_event_loop", "uvloop.new_event_loop")


@contextlib.contextmanager
def running(folder: Path, code: str, word: str = "ready") -> Iterator[subprocess.Popen[str]]:
    """Start a script, and wait until it, or an environment of it, says a word."""
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


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: the address of a fork server in it may have a hundred letters."""
    with tempfile.TemporaryDirectory(prefix="left", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def sync(folder: Path, method: str, does: str, before: str = "", in_c: bool = False) -> str:
    does = indent(dedent(DOES[does]).strip(), " " * 8)
    return SYNC.format(folder=folder, method=method, does=does, before=before, in_c=in_c)


def assert_broken_off(process: subprocess.Popen[str], folder: Path) -> str:
    """Ctrl-C has ended it, without a word of workers or tasks of agym's; gives what it wrote."""
    err = assert_nothing_left(process, folder)
    assert process.returncode == -signal.SIGINT
    assert err.splitlines().count("KeyboardInterrupt") == 1, err
    assert "agym-" not in err
    return err


def assert_nothing_left(process: subprocess.Popen[str], folder: Path, *, files: bool = True) -> str:
    """Processes and files are gone in time; gives what was written to standard error."""
    end = time.monotonic() + patience()
    while (left := members(process.pid)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not left, f"processes that stay: {left}"
    assert not files or [*(folder / "tmp").iterdir()] == []
    _, err = process.communicate(timeout=patience(3))
    assert "resource_tracker" not in err
    assert "leaked" not in err
    return err


# ---------------------------------------------------------------- sudden ends


@pytest.mark.once
@pytest.mark.parametrize("does", ["idle", "stepping", "hanging", "hanging in C"])
@each_method
def test_a_killed_script(method: str, does: str, tmp_path: Path) -> None:
    does, _, in_c = does.partition(" in ")
    word = "hangs" if does == "hanging" else "ready"
    with running(tmp_path, sync(tmp_path, method, does, in_c=bool(in_c)), word) as process:
        process.kill()
        assert assert_nothing_left(process, tmp_path) == ""


@pytest.mark.full
@pytest.mark.parametrize("in_c", [False, True])
def test_a_killed_script_that_ignores_hangups(in_c: bool, tmp_path: Path) -> None:
    """As under ``nohup``: the workers are there after a hangup, and not without the script."""
    ignores = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    does = """
        for pid in {*envs.pid()}:
            os.kill(pid, signal.SIGHUP)
        signal.sigtimedwait([], 1.5)
        envs.step([0, 0, 9, 0])
    """
    code = sync(tmp_path, "spawn", "hanging", ignores, in_c)
    code = code.replace("        " + DOES["hanging"], indent(dedent(does).strip(), " " * 8))
    with running(tmp_path, code, "hangs") as process:
        process.kill()
        assert assert_nothing_left(process, tmp_path) == ""


@pytest.mark.full
@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3, 0.6])
@each_method
def test_a_script_killed_while_its_workers_start(method: str, delay: float, tmp_path: Path) -> None:
    code = sync(tmp_path, method, "idle", "print('starts', flush=True)")
    with running(tmp_path, code, "starts") as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=delay)
        process.kill()
        # The fork server's folder lives for a moment, in which nobody but this process knows it.
        err = assert_nothing_left(process, tmp_path, files=method != "forkserver")
        # A process that multiprocessing has started, and not yet told what to do, complains of it.
        if method == "fork" or "in spawn_main" not in err:
            assert err == ""
        else:
            assert err.count("Traceback") == 1
            assert err.endswith("EOFError: Ran out of input\n")


@pytest.mark.once
@each_method
def test_a_terminated_script(method: str, tmp_path: Path) -> None:
    with running(tmp_path, sync(tmp_path, method, "stepping")) as process:
        process.terminate()
        assert assert_nothing_left(process, tmp_path) == ""
        assert process.returncode == -signal.SIGTERM


@pytest.mark.once
@each_method
def test_environments_are_closed_when_the_script_is_killed(method: str, tmp_path: Path) -> None:
    code = sync(tmp_path, method, "idle")
    code = code.replace("faulty_envs import Hangs", "plain_envs import Counted")
    code = code.replace("partial(Hangs, in_c=False)", "partial(Counted, 'log')")
    with running(tmp_path, code) as process:
        process.kill()
        assert_nothing_left(process, tmp_path)
    assert (tmp_path / "log").read_text().count("closed") == 4


# ---------------------------------------------------------------- orderly ends


@pytest.mark.once
@pytest.mark.parametrize("does", ["idle", "stepping"])
@each_method
def test_ctrl_c(method: str, does: str, tmp_path: Path) -> None:
    with running(tmp_path, sync(tmp_path, method, does)) as process:
        os.killpg(process.pid, signal.SIGINT)
        assert_broken_off(process, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("delay", [0.0, 0.1, 0.2, 0.3])
def test_ctrl_c_while_workers_start(delay: float, tmp_path: Path) -> None:
    """Wherever it hits, the workers say nothing about it."""
    # Ctrl-C in an import is shown by Python in two parts, a KeyError and what it was handled for.
    imports = "import agym.api.make, agym.core.backends.process.process_pool"
    code = sync(tmp_path, "spawn", "idle", f"{imports}; print('starts', flush=True)")
    with running(tmp_path, code, "starts") as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=delay)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=patience(3))
        assert assert_broken_off(process, tmp_path).count("Traceback") == 1


@pytest.mark.full
@pytest.mark.parametrize("in_c", [False, True])
def test_ctrl_c_when_an_environment_hangs(in_c: bool, tmp_path: Path) -> None:
    """The script gives the environment its time to close; then it ends, and all with it."""
    with running(tmp_path, sync(tmp_path, "spawn", "hanging", in_c=in_c), "hangs") as process:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=patience(3))
        assert_broken_off(process, tmp_path)


@pytest.mark.once
@pytest.mark.parametrize("loop", LOOPS)
@each_method
def test_ctrl_c_in_a_task(method: str, loop: str, tmp_path: Path) -> None:
    does = "await asyncio.create_task(play(envs))"
    code = ASYNC.format(folder=tmp_path, method=method, does=does, loop=loop)
    with running(tmp_path, code) as process:
        os.killpg(process.pid, signal.SIGINT)
        assert_broken_off(process, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("loop", LOOPS)
@each_method
def test_system_exit_in_a_task(method: str, loop: str, tmp_path: Path) -> None:
    does = """
            async with asyncio.TaskGroup() as group:
                group.create_task(play(envs))
                group.create_task(leave())
    """
    leave = """
    async def leave():
        await asyncio.sleep(0.1)
        raise SystemExit(7)
    """
    code = ASYNC.format(folder=tmp_path, method=method, does=does.strip(), loop=loop)
    code = code.replace("    async def main", leave.strip("\n") + "\n    async def main")
    with running(tmp_path, code) as process:
        process.wait(timeout=patience(3))
        # asyncio itself may complain that nobody looked at the task's exception.
        assert "agym-" not in assert_nothing_left(process, tmp_path)
        assert process.returncode == 7


@pytest.mark.full
@each_method
def test_a_script_that_exits_when_it_is_terminated(method: str, tmp_path: Path) -> None:
    exits = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))"
    with running(tmp_path, sync(tmp_path, method, "stepping", exits)) as process:
        process.terminate()
        assert assert_nothing_left(process, tmp_path) == ""
        assert process.returncode == 5
