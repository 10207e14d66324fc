"""Worker processes as a user's script sees them: guards, Ctrl-C, sudden death, forgotten closes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.support.patience import patience
from tests.support.scripts import end_session, members, run, start

METHODS = ("spawn", "forkserver", "fork")
each_method = pytest.mark.parametrize("method", METHODS)

# An environment of the script's own, registered in it, and no guard anywhere.
UNGUARDED = """
    import gymnasium, numpy as np
    import agym

    print("the script runs")

    class Mine(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {{"scale": SCALE}}

        def step(self, action):
            return np.full(1, action, np.float32), SCALE, False, False, {{}}

    SCALE = 3.0
    gymnasium.register("Mine-v0", entry_point=Mine)
    for env in ("Mine-v0", Mine, lambda: Mine(), [Mine, Mine, Mine]):
        with agym.make(env, 3, backend="process", workers=2, start_method="{method}") as envs:
            print(envs.reset().infos[2]["scale"], envs.step([0, 1, 1]).rewards)
"""


@pytest.mark.full
@each_method
def test_no_guard_is_needed(method: str, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, UNGUARDED.format(method=method))
    assert (code, err) == (0, "")
    assert out.splitlines() == ["the script runs"] + ["3.0 [3.0, 3.0, 3.0]"] * 4


FORGETFUL = """
    from functools import partial
    import agym
    from tests.support.envs.plain_envs import Counted

    factory = partial(Counted, "log")
    envs = agym.make(factory, 3, backend="process", workers=2, start_method="{method}")
    envs.reset()
    print("done", flush=True)
    {end}
"""


@pytest.mark.once
@each_method
@pytest.mark.parametrize("end", ["", "raise SystemExit(7)", "1 / 0"])
def test_a_script_that_forgets_to_close(method: str, end: str, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, FORGETFUL.format(method=method, end=end))
    assert out == "done\n"
    assert code == {"": 0, "raise SystemExit(7)": 7, "1 / 0": 1}[end]
    assert err.count("Traceback") == (end == "1 / 0"), err
    # The workers ended by themselves: nobody had to wait for them and end them by force.
    assert (tmp_path / "log").read_text().count("closed") == 3


@pytest.mark.full
def test_an_async_script_that_forgets_to_close(tmp_path: Path) -> None:
    code, out, err = run(
        tmp_path,
        """
        import asyncio
        from functools import partial
        import agym
        from tests.support.envs.plain_envs import Counted

        async def main():
            envs = await agym.make_async(partial(Counted, "log"), 3, backend="process", workers=2)
            await envs.reset()
            envs.step([0, 0, 0])
            print("done")

        asyncio.run(main())
        """,
    )
    assert (code, out, err) == (0, "done\n", "")
    assert (tmp_path / "log").read_text().count("closed") == 3


ENDLESS = {
    "sync": """
        import agym
        from tests.support.envs.plain_envs import Probe

        with agym.make(Probe, 4, backend="process", workers=2, start_method="{method}") as envs:
            envs.reset()
            print(*envs.pid(), flush=True)
            while True:
                envs.step([0, 0, 0, 0])
    """,
    "async": """
        import agym, asyncio
        from tests.support.envs.plain_envs import Probe

        async def main():
            async with agym.make_async(
                Probe, 4, backend="process", workers=2, start_method="{method}"
            ) as envs:
                await envs.reset()
                print(*await envs.call("pid"), flush=True)
                while True:
                    await envs.step([0, 0, 0, 0])

        asyncio.run(main())
    """,
}


@pytest.mark.once
@each_method
@pytest.mark.parametrize("face", ENDLESS)
def test_ctrl_c(face: str, method: str, tmp_path: Path) -> None:
    with start(tmp_path, ENDLESS[face].format(method=method)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, err = process.communicate(timeout=patience(3))
        finally:
            left = end_session(process.pid)
    assert not left, f"orphans: {left}"
    assert process.returncode == -signal.SIGINT, err
    assert err.splitlines().count("KeyboardInterrupt") == 1, err
    assert "agym-" not in err, f"a worker printed a traceback of its own: {err}"


@pytest.mark.once
@each_method
def test_a_killed_script_leaves_no_worker(method: str, tmp_path: Path) -> None:
    with start(tmp_path, ENDLESS["sync"].format(method=method)) as process:
        assert process.stdout is not None
        workers = {int(pid) for pid in process.stdout.readline().split()}
        assert workers <= {member.pid for member in members(process.pid)}
        process.kill()
        process.wait(timeout=patience(3))
        left = end_session(process.pid)
    assert not left, f"orphans: {left}"


@pytest.mark.full
def test_idle_workers_of_a_killed_script_end_too(tmp_path: Path) -> None:
    code = (
        ENDLESS["sync"].format(method="spawn").replace("while True:", "input()\n            if 0:")
    )
    with start(tmp_path, code) as process:
        assert process.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in set(process.stdout.readline().split())]
        process.kill()
        _, left = psutil.wait_procs(workers, timeout=patience(2))
        process.wait(timeout=patience(3))
        end_session(process.pid)
    assert not left, f"orphans: {left}"


@pytest.mark.full
@pytest.mark.parametrize("delay", [0.05, 0.1, 0.2, 0.3])
def test_ctrl_c_while_workers_start(delay: float, tmp_path: Path) -> None:
    """Wherever it hits, the workers say nothing about it and none is left."""
    code = ENDLESS["sync"].format(method="spawn")
    code = code.replace("with agym", "print('starting', flush=True)\n        with agym")
    with start(tmp_path, code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "starting\n"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=delay)
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, err = process.communicate(timeout=patience(3))
        finally:
            left = end_session(process.pid)
    assert not left, f"orphans: {left}"
    assert process.returncode == -signal.SIGINT, err
    assert err.count("Traceback") == 1, err


INTERRUPTED = """
    import os, random, signal, threading
    from functools import partial
    import agym
    from tests.support.envs.plain_envs import Tally

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    with agym.make(partial(Tally, length=10**9), 4, {place}) as envs:
        for _ in range(300):
            envs.reset()
            k = 0
            try:
                threading.Timer(random.uniform(0, 0.004), interrupt).start()
                while True:
                    result = envs.step([k % 9] * 4)
                    k += 1
            except KeyboardInterrupt:
                pass
            if k:
                assert [o[1] for o in result.observations] == [k] * 4
                assert [o[2] for o in result.observations] == [(k - 1) % 9] * 4
    print("fine")
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "place", ['backend="serial"', 'backend="process", workers=2'], ids=["serial", "process"]
)
def test_interrupts_at_any_moment_do_no_harm(place: str, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, INTERRUPTED.format(place=place))
    assert (code, out, err) == (0, "fine\n", "")
