"""``python -X dev`` has nothing to complain about, neither in workers nor in the caller."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scripts import run

DEV = ("-X", "dev")

# Each environment blocks for longer than asyncio's debug mode finds normal.
ENVS = """
    import asyncio, time
    import agym
    from tests.support.envs.coroutine_envs import AsyncTally
    from tests.support.envs.plain_envs import Tally

    class Plain(Tally):
        def __init__(self):
            time.sleep(0.15)
            super().__init__()

        def step(self, action):
            time.sleep(0.15)
            return *super().step(action)[:4], {{"text": "a message"}}

        def fail(self):
            raise ValueError("told to fail")

    class Coroutine(AsyncTally):
        def __init__(self):
            super().__init__(Plain)
"""
SCRIPT = (
    ENVS
    + """
    def play(envs):
        envs.reset(seed=0)
        envs.step([0, 1])
        try:
            envs.call("fail")
        except ExceptionGroup:
            pass
        envs.stats()

    with agym.make({env}, 2, {options}) as envs:
        play(envs)
    if "serial" not in {options!r}:  # which has no deadline
        with agym.make({env}, 2, timeout=60, on_fault="restart", {options}) as envs:
            play(envs)
            envs.restart([0])
            play(envs)
    forgotten = agym.make(lambda: {env}(), 2, {options})
    play(forgotten)
"""
)
SPAWN = "backend='process', workers=2"
FORK_SERVER = "backend=agym.backends.Process(start_method='forkserver'), workers=2"
FORK = "backend=agym.backends.Process(start_method='fork'), workers=2"
SETUPS = [
    ("Plain", "backend='serial'"),
    ("Plain", "backend='thread'"),
    ("Plain", SPAWN),
    ("Plain", FORK_SERVER),
    ("Plain", FORK),
    ("Coroutine", "backend='asyncio'"),
    ("Coroutine", SPAWN),
    ("Coroutine", FORK),
]


@pytest.mark.full
@pytest.mark.parametrize(("env", "options"), SETUPS)
def test_nothing_is_said(env: str, options: str, tmp_path: Path) -> None:
    assert run(tmp_path, SCRIPT.format(env=env, options=options), 12, DEV) == (0, "", "")


@pytest.mark.full
def test_nothing_is_said_by_what_measures(tmp_path: Path) -> None:
    script = ENVS.format() + "    agym.plan(Plain, 2)\n    agym.plan(lambda: Coroutine(), 2)\n"
    assert run(tmp_path, script, 12, DEV) == (0, "", "")


USES_LOOP = (
    ENVS
    + """
    async def main():
        asyncio.get_running_loop().slow_callback_duration = 60  # on a busy machine
        async with agym.make_async(Tally, 2, {options}) as envs:
            await envs.reset(seed=0)
            await envs.step([0, 1])

    asyncio.run(main())
"""
)


@pytest.mark.once
@pytest.mark.parametrize("options", ["backend='thread'", SPAWN])
def test_nothing_is_said_on_the_callers_loop(options: str, tmp_path: Path) -> None:
    assert run(tmp_path, USES_LOOP.format(options=options), 12, DEV)[::2] == (0, "")
