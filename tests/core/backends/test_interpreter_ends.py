"""Python ends by itself, quietly, whatever environments a program has left open."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.scripts import run

BEGIN = """
    import asyncio, atexit, gc, sys, threading, time
    from tests.support.envs.exiting_envs import make, make_async, make_vec
    make, make_async, make_vec = make["{kind}"], make_async["{kind}"], make_vec["{kind}"]

    def play(own=None):
        with make() as envs:
            envs.reset()
            while True:
                yield envs.step([1, 1, 1])

    async def play_async():
        async with make_async() as envs:
            await envs.reset()
            while True:
                yield await envs.step([1, 1, 1])

    class Agent:
        def __init__(self):
            self.envs = make()
            self.own = self

        def __del__(self):
            self.envs.close()
"""

SYNC = {
    "a generator": """
        steps = play()
        next(steps)
    """,
    "a generator in a cycle": """
        own = []
        own.append(play(own))
        next(own[0])
        del own
    """,
    "a generator in a cycle that is collected": """
        gc.disable()  # until there is nothing else to do
        own = []
        own.append(play(own))
        next(own[0])
        del own
        gc.enable()
        gc.collect()
    """,
    "a global": """
        envs = make()
        envs.reset()
        envs.step([1, 1, 1])
    """,
    "forgotten": """
        make().reset()
    """,
    "__del__ in a cycle": """
        agent = Agent()
        agent.envs.reset()
        other = Agent()
        del other
    """,
    "__del__ in a cycle that is collected": """
        gc.disable()
        Agent().envs.reset()
        gc.enable()
        gc.collect()
    """,
    "__del__ of a class of a module": """
        import types

        module = sys.modules["kept"] = types.ModuleType("kept")
        module.agent = Agent()
        module.agent.own = None
    """,
    "atexit": """
        atexit.register(lambda: envs.close())
        envs = make()
        envs.reset()
        atexit.register(lambda: envs.step([1, 1, 1]))
        atexit.register(envs.close)
        atexit.unregister(envs.close)
    """,
    "a thread that goes on": """
        def play():
            envs.reset()
            main.join()  # which has ended then, and Python waits for this thread
            for _ in range(20):
                envs.step([1, 1, 1])
            kept.append(make())
            kept[0].reset()
            print("played")

        kept = []
        main = threading.main_thread()
        envs = make()
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
    "handles and groups": """
        handles, groups = list(make()), make().split(1)
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
}

ASYNC = {
    "never opened": """
        envs = make_async()
    """,
    "never closed": """
        async def main():
            global envs, pending
            envs = await make_async()
            await envs.reset()
            pending = envs.step([1, 1, 1])

        asyncio.run(main())
    """,
    "a generator": """
        async def main():
            global steps
            steps = play_async()
            await anext(steps)

        asyncio.run(main())
    """,
    "a generator of a loop that is left": """
        runner = asyncio.Runner()
        steps = play_async()
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
    "a loop in a daemon thread": """
        async def play():
            async for _ in play_async():
                begun.set()
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


def ends(kind: str, code: str, folder: Path) -> str:
    script = dedent(BEGIN.format(kind=kind)) + dedent(code) + "print('done')\n"
    status, out, err = run(folder, script)
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
ASYNC_TELLING = ("never closed", "a generator", "a loop that is left", "a loop in a daemon thread")
CASES = [
    *((SYNC, "thread", way) for way in SYNC),
    *((SYNC, kind, way) for kind in ("serial", "process", "caller", "asyncio") for way in TELLING),
    *((SYNC, kind, "a generator") for kind in ("waiting", "loops", "vector", "auto")),
    *((ASYNC, "asyncio", way) for way in ASYNC),
    *((ASYNC, kind, way) for kind in ("serial", "thread", "process") for way in ASYNC_TELLING),
    (HANGING, "serial", "awaited by a daemon thread"),
    *((HANGING, kind, "in close") for kind in ("serial", "thread", "process", "caller")),
    *(
        (HANGING, kind, way)
        for kind in ("thread", "process", "asyncio", "waiting")
        for way in HANGING
        if way != "in close"
    ),
]


@pytest.mark.once
@pytest.mark.parametrize(("ways", "kind", "way"), CASES)
def test_environments_that_are_left(
    ways: dict[str, str], kind: str, way: str, tmp_path: Path
) -> None:
    out = ends(kind, ways[way], tmp_path)
    assert out.count("played") == ways[way].count('"played"')


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


FORGETFUL = """
    from functools import partial
    import agym
    from tests.support.envs.plain_envs import Counted

    def play():
        with agym.make(factory, 3, backend={backend}) as envs:
            yield envs.reset()

    factory = partial(Counted, "log")
    envs = agym.make(factory, 3, backend={backend})
    steps = play()
    next(steps)
    {end}
"""
BACKENDS = ["'serial'", "'thread'"] + [
    f"agym.backends.Process(start_method='{method}', workers=2)"
    for method in ("spawn", "forkserver", "fork")
]


@pytest.mark.once
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("end", ["", "raise SystemExit(7)", "1 / 0"])
def test_environments_are_closed_and_the_script_ends_as_without_them(
    end: str, backend: str, tmp_path: Path
) -> None:
    """The exit code and the traceback are the script's own, and nothing is added to them."""
    code, out, err = run(tmp_path, FORGETFUL.format(backend=backend, end=end))
    assert (code, out) == ({"": 0, "raise SystemExit(7)": 7, "1 / 0": 1}[end], "")
    assert err.count("Traceback") == (end == "1 / 0"), err
    assert "agym" not in err
    # The workers ended by themselves: nobody had to wait for them and end them by force.
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
