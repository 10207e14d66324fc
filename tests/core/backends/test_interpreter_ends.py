"""Python ends by itself, quietly, whatever environments a program has left open."""

from __future__ import annotations

import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.scripts import run

BEGIN = """
    import asyncio, atexit, gc, sys, threading, time
    from tests.support.envs.exiting_envs import make, make_async, make_vec
    make, make_async, make_vec = make["{kind}"], make_async["{kind}"], make_vec["{kind}"]
"""

SYNC = {
    "a generator": """
        def play():
            with make() as envs:
                envs.reset()
                while True:
                    yield envs.step([1, 1, 1])

        steps = play()
        next(steps)
    """,
    "a generator in a cycle": """
        def play(own):
            with make() as envs:
                envs.reset()
                while True:
                    yield envs.step([1, 1, 1])

        own = []
        own.append(play(own))
        next(own[0])
        del own
    """,
    "a global": """
        envs = make()
        envs.reset()
        envs.step([1, 1, 1])
    """,
    "never reset": """
        envs = make()
    """,
    "forgotten": """
        make().reset()
    """,
    "a cycle": """
        class Agent:
            def __init__(self):
                self.envs = make()
                self.own = self

        Agent().envs.reset()
    """,
    "__del__": """
        class Agent:
            def __init__(self):
                self.envs = make()

            def __del__(self):
                self.envs.close()

        agent = Agent()
        agent.envs.reset()
    """,
    "__del__ in a cycle": """
        class Agent:
            def __init__(self):
                self.envs = make()
                self.own = self

            def __del__(self):
                self.envs.close()

        agent = Agent()
        agent.envs.reset()
        other = Agent()
        del other
    """,
    "__del__ in a cycle that is collected": """
        class Agent:
            def __init__(self):
                self.envs = make()
                self.own = self

            def __del__(self):
                self.envs.close()

        gc.disable()  # until there is nothing else to do
        Agent().envs.reset()
        gc.enable()
        gc.collect()
    """,
    "a generator in a cycle that is collected": """
        def play(own):
            with make() as envs:
                envs.reset()
                while True:
                    yield envs.step([1, 1, 1])

        gc.disable()
        own = []
        own.append(play(own))
        next(own[0])
        del own
        gc.enable()
        gc.collect()
    """,
    "__del__ of a class of a module": """
        import types

        class Agent:
            def __del__(self):
                self.envs.close()

        module = sys.modules["kept"] = types.ModuleType("kept")
        module.agent = Agent()
        module.agent.envs = make()
    """,
    "atexit": """
        atexit.register(lambda: envs.close())
        envs = make()
        envs.reset()
        atexit.register(lambda: envs.step([1, 1, 1]))
        atexit.register(envs.close)
        atexit.unregister(envs.close)
    """,
    "atexit, before anything was made": """
        def last():
            assert envs.step([1, 1, 1]).rewards
            envs.close()

        atexit.register(last)
        envs = make()
        envs.reset()
    """,
    "a thread that goes on": """
        def play():
            envs.reset()
            main.join()  # which has ended then, and Python waits for this thread
            for _ in range(20):
                envs.step([1, 1, 1])
            print("played")

        main = threading.main_thread()
        envs = make()
        threading.Thread(target=play).start()
    """,
    "made in a thread that goes on": """
        def play():
            main.join()
            envs = make()
            envs.reset()
            envs.step([1, 1, 1])
            kept.append(envs)
            print("played")

        kept = []
        main = threading.main_thread()
        threading.Thread(target=play).start()
    """,
    "a daemon thread in the middle of it": """
        def play():
            envs.reset()
            begun.set()
            while True:
                envs.step([1, 1, 1])

        begun = threading.Event()
        envs = make()
        threading.Thread(target=play, daemon=True).start()
        begun.wait()
    """,
    "groups": """
        envs = make()
        envs.reset()
        groups = envs.split(1)
        del envs
    """,
    "handles": """
        handles = list(make())
        gc.collect()
    """,
    "Gymnasium's API": """
        envs = make_vec()
        envs.reset()
        envs.step([1, 1, 1])
    """,
    "under way": """
        envs = make()
        envs.reset()
        envs.send([1, 1, 1])
    """,
    "many": """
        kept = [make() for _ in range(5)]
    """,
    "weakref.finalize": """
        import weakref

        class Agent:
            pass

        agent = Agent()
        envs = make()
        weakref.finalize(agent, envs.close)
    """,
}

ASYNC = {
    "never opened": """
        envs = make_async()
    """,
    "never closed": """
        async def main():
            envs = await make_async()
            await envs.reset()
            kept.append(envs)

        kept = []
        asyncio.run(main())
    """,
    "never awaited": """
        async def main():
            global envs, pending
            envs = await make_async()
            await envs.reset()
            pending = envs.step([1, 1, 1])

        asyncio.run(main())
    """,
    "a generator": """
        async def play():
            async with make_async() as envs:
                await envs.reset()
                while True:
                    yield await envs.step([1, 1, 1])

        async def main():
            global steps
            steps = play()
            await anext(steps)

        asyncio.run(main())
    """,
    "a generator of a loop that is left": """
        async def play():
            async with make_async() as envs:
                await envs.reset()
                while True:
                    yield await envs.step([1, 1, 1])

        runner = asyncio.Runner()
        steps = play()
        async def main():
            await anext(steps)

        runner.run(main())
    """,
    "a loop that is left": """
        async def main():
            envs = await make_async()
            await envs.reset()
            return envs

        loop = asyncio.new_event_loop()
        envs = loop.run_until_complete(main())
        import warnings
        warnings.simplefilter("ignore", ResourceWarning)  # it is the script's own
    """,
    "a task that goes on": """
        async def play():
            async with make_async() as envs:
                await envs.reset()
                begun.set_result(None)
                while True:
                    await envs.step([1, 1, 1])

        async def main():
            global begun, task
            begun = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(play())
            await begun

        asyncio.run(main())
    """,
    "a loop in a daemon thread": """
        async def play():
            envs = await make_async()
            await envs.reset()
            begun.set()
            while True:
                await envs.step([1, 1, 1])
                await asyncio.sleep(0)

        begun = threading.Event()
        threading.Thread(target=lambda: asyncio.run(play()), daemon=True).start()
        begun.wait()
    """,
}

HANGING = {
    "in close": """
        envs = make()
        envs.reset()
        envs.set_attr("hangs_in_close", True)
    """,
    "sent": """
        envs = make()
        envs.reset()
        envs.send([9, 9, 9])
    """,
    "sent in a generator": """
        def play():
            with make() as envs:
                envs.reset()
                envs.send([9, 1, 1])
                yield

        steps = play()
        next(steps)
    """,
    "awaited by a daemon thread": """
        def play():
            begun.set()
            envs.step([9, 9, 9])

        begun = threading.Event()
        envs = make()
        envs.reset()
        threading.Thread(target=play, daemon=True).start()
        begun.wait()
    """,
}

END = """
    print("done")
"""


def ends(kind: str, code: str, folder: Path) -> str:
    script = dedent(BEGIN.format(kind=kind)) + dedent(code) + dedent(END)
    try:
        status, out, err = run(folder, script)
    except subprocess.TimeoutExpired:
        pytest.fail("it did not end")
    assert (status, err) == (0, ""), f"{out}\n{err}"
    assert "done" in out.splitlines()
    return out


# A script takes seconds, so that only threads are tried in every way.
TELLING = (
    "a generator",
    "a global",
    "forgotten",
    "__del__ in a cycle",
    "__del__ in a cycle that is collected",
    "atexit",
    "a thread that goes on",
    "a daemon thread in the middle of it",
    "under way",
)
SYNC_CASES = [
    *(("thread", way) for way in SYNC),
    *((kind, way) for kind in ("serial", "process", "caller", "asyncio") for way in TELLING),
    *((kind, "a generator") for kind in ("waiting", "loops", "vector", "auto")),
]
ASYNC_TELLING = ("never closed", "a generator", "a loop that is left", "a loop in a daemon thread")
ASYNC_CASES = [
    *(("asyncio", way) for way in ASYNC),
    *((kind, way) for kind in ("serial", "thread", "process") for way in ASYNC_TELLING),
]
HANGING_CASES = [
    ("serial", "awaited by a daemon thread"),
    *((kind, "in close") for kind in ("serial", "thread", "process", "caller")),
    *(
        (kind, way)
        for kind in ("thread", "process", "asyncio", "waiting")
        for way in HANGING
        if way != "in close"
    ),
]


@pytest.mark.once
@pytest.mark.parametrize(("kind", "way"), SYNC_CASES)
def test_environments_that_are_left(kind: str, way: str, tmp_path: Path) -> None:
    out = ends(kind, SYNC[way], tmp_path)
    assert out.count("played") == SYNC[way].count('"played"')


@pytest.mark.once
@pytest.mark.parametrize(("kind", "way"), ASYNC_CASES)
def test_async_environments_that_are_left(kind: str, way: str, tmp_path: Path) -> None:
    ends(kind, ASYNC[way], tmp_path)


@pytest.mark.once
@pytest.mark.parametrize(("kind", "way"), HANGING_CASES)
def test_environments_that_hang(kind: str, way: str, tmp_path: Path) -> None:
    ends(kind, HANGING[way], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["serial", "process"])
def test_pages_that_are_left(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the extra `watch`")
    code = """
        import agym

        def play():
            with make() as envs, agym.watch(envs):
                yield envs.reset()

        envs = make()
        page = agym.watch(envs)
        steps = play()
        next(steps)
    """
    ends(kind, code, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["serial", "thread", "process", "asyncio"])
@pytest.mark.parametrize("does", ["plays", "hangs"])
def test_a_signal_handler_that_closes(does: str, kind: str, tmp_path: Path) -> None:
    """It comes in the middle of a step, in whose thread it runs."""
    code = """
        import os, signal

        def end(*_):
            envs.close()
            raise SystemExit(7)

        def interrupt():
            begun.wait()
            os.kill(os.getpid(), signal.SIGTERM)

        signal.signal(signal.SIGTERM, end)
        begun = threading.Event()
        envs = make()
        envs.reset()
        threading.Thread(target=interrupt, daemon=True).start()
        begun.set()
        while True:
            envs.step([ACTION, 1, 1])
    """
    code = code.replace("ACTION", "1" if does == "plays" else "9")
    code = dedent(BEGIN.format(kind=kind)) + dedent(code)
    assert run(tmp_path, code) == (7, "", "")


@pytest.mark.once
@pytest.mark.parametrize("kind", ["serial", "thread", "process"])
def test_what_is_left_is_closed(kind: str, tmp_path: Path) -> None:
    """So that a video is whole, for instance."""
    script = """
        from functools import partial
        import agym
        from tests.support.envs.plain_envs import Counted

        def play():
            with agym.make(factory, 3, backend="{kind}") as envs:
                yield envs.reset()

        factory = partial(Counted, "log")
        envs = agym.make(factory, 3, backend="{kind}")
        steps = play()
        next(steps)
    """
    assert run(tmp_path, script.format(kind=kind)) == (0, "", "")
    assert (tmp_path / "log").read_text().count("closed") == 6


def test_a_block_that_ends_after_its_modules(tmp_path: Path) -> None:
    """As without a GIL, where a generator may be closed only when modules have no globals left."""
    script = """
        import atexit

        def tear_down():  # after agym's own function, which is registered later
            for name in [name for name in vars(sync) if not name.startswith("__")]:
                setattr(sync, name, None)
            steps.close()
            print("done")

        atexit.register(tear_down)

        import agym
        from agym.api import sync

        def play():
            with agym.make("CartPole-v1", 2, backend="thread") as envs:
                yield envs.reset()

        steps = play()
        next(steps)
    """
    assert run(tmp_path, script) == (0, "done\n", "")


@pytest.mark.once
@pytest.mark.parametrize("kind", ["serial", "thread", "process", "asyncio"])
@pytest.mark.parametrize("end", ["sys.exit(7)", "1 / 0"])
def test_how_a_program_ends_stays(end: str, kind: str, tmp_path: Path) -> None:
    """Its exit code and its traceback are its own, and nothing is added to them."""
    code = dedent(BEGIN.format(kind=kind)) + dedent(SYNC["a generator"]) + end
    status, _, err = run(tmp_path, code)
    assert status == {"sys.exit(7)": 7, "1 / 0": 1}[end]
    assert err.count("Traceback") == (end == "1 / 0"), err
    assert "agym" not in err
