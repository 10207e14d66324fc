"""A child that is forked while there are environments: they stay its parent's."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from textwrap import indent

import psutil
import pytest

from tests.support.patience import patience
from tests.support.scripts import end_session, members, run, start

SETUPS = {
    "spawn": 'backend=agym.backends.Process(start_method="spawn"), workers=2',
    "forkserver": 'backend=agym.backends.Process(start_method="forkserver"), workers=2',
    "fork": 'backend=agym.backends.Process(start_method="fork"), workers=2',
    "thread": 'backend="thread"',
}
each_place = pytest.mark.parametrize("setup", SETUPS)

SCRIPT = """
    import gc, os, signal, sys, warnings
    import agym
    from tests.support.envs.plain_envs import Probe

    warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads is forked

    def refused(function):
        try:
            function()
        except agym.ClosedError as error:
            assert "forked" in str(error), error
        else:
            raise AssertionError("it was not refused")

    with agym.make(Probe, 4, {setup}) as envs:
        envs.reset()
        for _ in range(2):
            child = os.fork()
            if not child:
{does}
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            for k in range(50):
                assert len(envs.step([0] * 4).infos) == 4
    print("fine")
"""

# What the child does.
CHILDREN = {
    "ends at once": "os._exit(3)",
    "leaves": "sys.exit(3)",
    "closes": "envs.close(); envs.close(); sys.exit(3)",
    "forgets": "del envs; gc.collect(); sys.exit(3)",
    "steps": "refused(lambda: envs.step([0] * 4)); sys.exit(3)",
    "calls": "refused(envs.reset); refused(lambda: envs.pid()); sys.exit(3)",
    "raises": "raise KeyError('mine')",
    "makes others": "agym.make(Probe, 2, backend='process').close(); sys.exit(3)",
}


def forking(setup: str, does: str) -> str:
    return SCRIPT.format(setup=SETUPS.get(setup, setup), does=indent(does, " " * 16))


@pytest.mark.once
@each_place
@pytest.mark.parametrize("child", CHILDREN)
def test_a_forked_child_disturbs_nothing(child: str, setup: str, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, forking(setup, CHILDREN[child]))
    raises = child == "raises"
    assert (code, out) == (0, "1\n1\nfine\n" if raises else "3\n3\nfine\n")
    assert err.count("Traceback") == err.count("KeyError: 'mine'") == 2 * raises, err
    assert raises or not err


def test_serial_environments_are_the_childs_own(tmp_path: Path) -> None:
    does = "envs.step([0] * 4); envs.close(); sys.exit(3)"
    assert run(tmp_path, forking('backend="serial"', does)) == (0, "3\n3\nfine\n", "")


ASYNC = """
    import asyncio, os, sys, warnings
    import agym
    from tests.support.envs.plain_envs import Probe

    warnings.simplefilter("ignore", DeprecationWarning)

    async def main():
        async with agym.make_async(Probe, 4, {setup}) as envs:
            await envs.reset()
            step = envs.step([0] * 4)
            child = os.fork()
            if not child:
                for call in (lambda: envs.step([0] * 4), envs.render, lambda: [*step.__await__()]):
                    try:
                        call()
                        os._exit(1)
                    except agym.ClosedError as error:
                        assert "forked" in str(error)
                await envs.aclose()
                os._exit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            await step
            for _ in range(50):
                await envs.step([0] * 4)
        print("fine")

    asyncio.run(main())
"""


@pytest.mark.full
@each_place
def test_the_async_api(setup: str, tmp_path: Path) -> None:
    assert run(tmp_path, ASYNC.format(setup=SETUPS[setup])) == (0, "3\nfine\n", "")


@pytest.mark.full
@pytest.mark.parametrize("setup", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("action", [0, 9])
def test_a_child_does_not_keep_the_workers_alive(action: int, setup: str, tmp_path: Path) -> None:
    """The parent is killed, also while an environment hangs in C, and the child lives on."""
    script = f"""
    import os, signal, warnings
    from functools import partial
    import agym
    from tests.support.envs.faulty_envs import Hangs

    warnings.simplefilter("ignore", DeprecationWarning)
    with agym.make(partial(Hangs, True), 4, {SETUPS[setup]}) as envs:
        envs.reset()
        child = os.fork()
        if not child:
            signal.pause()
        print(child, *envs.pid(), flush=True)
        while True:
            envs.step([0, 0, {action}, 0])
    """
    with start(tmp_path, script) as process:
        try:
            assert process.stdout is not None
            child, *workers = map(int, process.stdout.readline().split())
            if action:
                assert process.stdout.readline() == "hangs\n"
            process.kill()
            end = time.monotonic() + patience()
            while not (left := {each.pid for each in members(process.pid)}).isdisjoint(workers):
                assert time.monotonic() < end
                time.sleep(0.01)
            assert child in left
        finally:
            process.kill()
            for member in members(process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            end_session(process.pid)
