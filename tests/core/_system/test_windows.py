"""On Windows environments run in the caller's process: everywhere but in worker processes.

Of Windows there is what it lacks. What only it has, such as its own event loop, is not there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.platforms import script

# A step of ``Gated`` waits until its gate is open. A waiter that it does not wake sleeps for good.
SETTING = """
    import asyncio, contextlib, sys, threading, warnings
    import gymnasium
    import numpy as np
    import agym
    from agym.api import waiting
    from tests.support.envs.coroutine_envs import AsyncTally
    from tests.support.insides import backend_of
    from tests.support.platforms import Proactor

    assert sys.platform == "win32"
    waiting.RECHECK_SECONDS = 1e6
    gate, inside = threading.Event(), threading.Event()

    class Gated(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Discrete(5)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            if action == 4:
                inside.set()
                gate.wait()
            return action, 1.0, False, False, {}

    KINDS = {
        "serial": Gated, "thread": Gated, "asyncio": AsyncTally, "vector": "CartPole-v1",
        "auto": Gated,
    }

    def let_through():
        inside.wait()
        gate.set()

    def close_gate():
        gate.clear()
        inside.clear()
"""

SYNC = """
    for backend, env in KINDS.items():
        with agym.make(env, 3, backend=backend) as envs:
            envs.reset(seed=0)
            assert len(envs.step([1, 0, 1])[1]) == 3
        with contextlib.closing(agym.make_vec(env, 3, backend=backend)) as envs:
            envs.reset(seed=0)
            assert len(envs.step(np.array([1, 0, 1]))[1]) == 3

    # Two threads wait at the same time, for different environments.
    with agym.make(Gated, 2, backend="thread", rate_limit=1e6) as envs:
        envs.reset()
        waiting = threading.Thread(target=envs.step, args=([4],), kwargs={"env_ids": [0]})
        opening = threading.Thread(target=let_through)
        waiting.start()
        inside.wait()
        envs.step([3], env_ids=[1])
        opening.start()
        waiting.join()
        opening.join()
"""

LOOPS = """
    async def main():
        assert isinstance(asyncio.get_running_loop(), Proactor)
        for backend, env in KINDS.items():
            async with agym.make_async(env, 3, backend=backend) as envs:
                await envs.reset(seed=0)
                assert len((await envs.step([1, 0, 1]))[1]) == 3
        for _ in range(2):  # cancelled, and then taken by the next call that waits
            async with agym.make_async(Gated, 2, backend="thread") as envs:
                await envs.reset()
                step = asyncio.ensure_future(envs.step([4, 0]))
                while not inside.is_set():
                    await asyncio.sleep(0)
                step.cancel()
                await asyncio.wait([step])
                assert step.cancelled()
                gate.set()
                await envs.call("reset")  # behind the step
                assert [*(await envs.step([1, 2]))[0]] == [1, 2]
                close_gate()
            # The gate is opened while the loop sleeps.
            async with agym.make_async(Gated, 2, backend="thread") as envs:
                await envs.reset()
                threading.Thread(target=let_through).start()
                assert [*(await envs.step([4, 0]))[0]] == [4, 0]
                close_gate()

    agym.run(main())
    asyncio.run(main())

    left = None

    async def forget():
        global left
        left = await agym.make_async(Gated, 2, backend="thread")
        await left.reset()

    asyncio.run(forget())
"""

FAULTS = """
    warnings.simplefilter("ignore")  # of the thread that is left behind
    with agym.make(Gated, 2, backend="thread", timeout=4.0) as envs:
        envs.reset()
        try:
            envs.step([4, 0])
        except agym.StepTimeout as error:
            assert 0 in error.env_ids
        else:
            raise AssertionError("no deadline")
        gate.set()

    # A signal does not end a sleep on Windows, nor when another thread gets it.
    import signal

    waiting.RECHECK_SECONDS = 1.0
    close_gate()

    def interrupt():
        inside.wait()
        signal.raise_signal(signal.SIGINT)

    with agym.make(Gated, 2, backend="thread") as envs:
        envs.reset()
        threading.Thread(target=interrupt).start()
        try:
            envs.step([4, 0])
        except KeyboardInterrupt:
            gate.set()
        else:
            raise AssertionError("no interrupt")
        envs.reset()
"""

NO_WORKERS = """
    for options in ({"backend": "process"}, {"backend": agym.backends.Process(workers=1)}):
        try:
            agym.make("CartPole-v1", 2, **options)
        except agym.UsageError as error:
            assert "needs Linux or macOS" in str(error) and "backend='thread'" in str(error)
        else:
            raise AssertionError("worker processes")

    CHOICES = [
        ("CliffWalking-v1", {}),
        ("Acrobot-v1", {"workers": 2}),
        ("CartPole-v1", {"on_fault": "restart"}),
        (Gated, {"workers": 2}),
        (AsyncTally, {"workers": 2}),
        (lambda: AsyncTally(), {"workers": 2}),
    ]
    for env, options in CHOICES:
        with agym.make(env, 64, **options) as envs:
            assert "Process" not in type(backend_of(envs)).__name__
            envs.reset()

    from typer.testing import CliRunner
    from agym.cli.app import app

    for command in ("demo CartPole-v1 -n 2 --steps 5", "plan CliffWalking-v1 2"):
        done = CliRunner().invoke(app, command.split())
        assert done.exit_code == 0, done.output
"""

SERVE = """
    async def main():
        async with agym.serve("CartPole-v1", 2) as server:
            factory = await asyncio.to_thread(agym.openenv, server.url, token=server.token)
            async with agym.make_async(factory, 2) as envs:
                await envs.reset(seed=0)
                assert [*(await envs.step([1, 0]))[1]] == [1.0, 1.0]

    asyncio.run(main())
"""

VECTORIZE = """
    sys.stderr = sys.stdout  # it says that it compiles
    with agym.make("agym/CartPole-v1", 3, backend="vector") as envs:
        envs.reset(seed=0)
        assert envs.step([1, 0, 1])[1] == [1.0] * 3
"""

SB3 = """
    import agym.sb3

    envs = agym.sb3.make_vec_env("CartPole-v1", 3, backend="thread")
    envs.reset()
    assert envs.step(np.array([1, 0, 1]))[1].tolist() == [1.0] * 3
    envs.close()
"""


CASES: dict[str, tuple[str, list[str]]] = {
    "sync": (SYNC, []),
    "loops": (LOOPS, []),
    "faults": (FAULTS, []),
    "no-workers": (NO_WORKERS, []),
    "serve": (SERVE, ["uvicorn", "httpcore2"]),
    "vectorize": (VECTORIZE, ["numba"]),
    "sb3": (SB3, ["stable_baselines3"]),
}


@pytest.mark.once
@pytest.mark.parametrize("case", CASES)
def test_environments_and_extras_run(case: str, tmp_path: Path) -> None:
    code, needed = CASES[case]
    for library in needed:
        pytest.importorskip(library)
    script(tmp_path, "win32", SETTING + code, *needed)
