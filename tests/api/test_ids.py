"""Ids as Gymnasium takes them: with the module that registers them, and without a version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import agym
from tests.support.patience import patience
from tests.support.scripts import ROOT, run

# A package of which nothing but its name is known to the program; and one that only registers.
PACKAGE = {
    "games/__init__.py": """
        import gymnasium
        from agym.testing.scripted import ScriptedEnv, scripted_vector_env

        class Dice(ScriptedEnv):
            metadata = {"render_modes": ["rgb_array"], "render_fps": 50}

            def __init__(self, length, render_mode=None):
                super().__init__(length=length)
                self.render_mode = render_mode

        def many(num_envs, length):
            mode = gymnasium.vector.AutoresetMode.DISABLED
            return scripted_vector_env(num_envs, autoreset_mode=mode, length=length)

        for env_id, length in {"Dice-v0": 6, "Dice-v1": 20, "Plain": 3}.items():
            gymnasium.register(
                f"games/{env_id}", "games:Dice", kwargs={"length": length},
                disable_env_checker=True, vector_entry_point=many,
            )
    """,
    "plugged/__init__.py": "",
    "plugged/in_.py": """
        import gymnasium
        gymnasium.register("Plugged-v3", "games:Dice", kwargs={"length": 4})
    """,
    "broken.py": "import no_such_package\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, code in PACKAGE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(dedent(code))
    return tmp_path


CALLS = {
    "make": "with agym.make({}, 3, {}) as envs: print(*envs.get_attr('length'))",
    "make_async": """
        async def main():
            async with agym.make_async({}, 3, {}) as envs:
                print(*await envs.get_attr('length'))
        asyncio.run(main())
    """,
    "make_vec": "with closing(agym.make_vec({}, 3, {})) as envs: print(*envs.get_attr('length'))",
    "sb3": """
        with closing(agym.sb3.make_vec_env({}, 3, {})) as envs: print(*envs.get_attr('length'))
    """,
    "AgymVectorEnv": """
        with closing(agym.AgymVectorEnv([lambda: gymnasium.make({})] * 3, {})) as envs:
            print(*envs.get_attr('length'))
    """,
    "plan": """
        agym.plan({0}, 1)
        with agym.make({0}, 3) as envs: print(*envs.get_attr('length'))
    """,
}


@pytest.mark.once
@pytest.mark.parametrize("call", CALLS)
def test_every_function_imports_the_module_of_an_id(call: str, folder: Path) -> None:
    """So do the worker processes."""
    if call == "sb3":
        pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    script = "import asyncio, gymnasium, agym\nfrom contextlib import closing\n"
    for env_id in ("games:games/Plain", "plugged.in_:Plugged-v3"):
        for backend in ("process", "thread") if call == "make" else ("process",):
            options = f"backend={backend!r}, workers=2"
            script += dedent(CALLS[call]).format(repr(env_id), options) + "\n"
    exit_code, out, err = run(folder, script, seconds=6)
    assert (exit_code, err) == (0, "")
    assert {*out.splitlines()} == {"3 3 3", "4 4 4"}


@pytest.mark.full
def test_an_id_without_a_version_is_the_latest(folder: Path) -> None:
    """Gymnasium warns that it takes the latest, and so does agym."""
    script = """
        import warnings, agym, gymnasium

        def warns(make):
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                make()
            return "latest" in str([one.message for one in warned])

        def check(env_id, length, **options):
            with agym.make(env_id, 2, **options) as envs:
                assert envs.get_attr("length") == [length, length], env_id

        for env_id, length, latest in [
            ("games:games/Dice-v0", 6, False), ("games:games/Dice", 20, True),
            ("games:games/Plain", 3, False), ("plugged.in_:Plugged-v3", 4, False),
            ("plugged.in_:Plugged", 4, True),
        ]:
            assert warns(lambda: gymnasium.make(env_id).close()) == latest
            assert warns(lambda: check(env_id, length, backend="process", workers=1)) == latest
        warnings.simplefilter("ignore")
        with agym.make("games:games/Dice", 2, backend="vector") as envs:
            envs.reset()
            lasts = [envs.step([0, 0]).terminated[0] for _ in range(20)]
            assert lasts.index(True) == 19
        print("done")
    """
    assert run(folder, script, seconds=6) == (0, "done\n", "")


MISTAKES: dict[str, list[str]] = {
    "no_such_module:Env-v0": ["No module named 'no_such_module'"],
    "broken:Env-v0": ["No module named 'no_such_package'"],
    "json:NoSuchEnv-v0": ["The module 'json' was imported, but did not register it"],
    "json:CartPole-v9": ["doesn't exist"],
    ":CartPole-v1": ["'' is not the name of a module"],
    "a:b:CartPole-v1": ["'a:b' is not the name of a module"],
    ".games:games/Dice-v0": ["'.games' is not the name of a module"],
    "json:": ["Malformed"],
    "not an id": ["Malformed"],
    "NoSuchEnv": ["NoSuchEnv` doesn't exist"],
    "CartPole-v99": ["CartPole"],
    "CartPoel-v1": ["CartPole"],
    "NoSuchGrid-Empty-5x5-v0": ["import", "package", "'module:NoSuchGrid-Empty-5x5-v0'"],
    "nosuch/Env-v0": ["import", "'module:nosuch/Env-v0'"],
}


@pytest.mark.parametrize("make", [agym.make, agym.make_async, agym.make_vec, agym.plan])
def test_a_mistake_in_an_id_is_described(
    make: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(folder)
    for env_id, parts in MISTAKES.items():
        with pytest.raises(agym.UsageError) as caught:
            make(env_id, 2)
        for part in (f"env={env_id!r} cannot be found: ", *parts):
            assert part in str(caught.value)


COMMANDS = {
    "agym.cli demo": ["-n", "2", "--steps", "5", "--workers", "1"],
    "agym.cli plan": ["2"],
    "benchmarks throughput": ["--seconds", "0.01", "--repeats", "1", "--workers", "1"],
}


@pytest.mark.full
@pytest.mark.parametrize("env_id", ["games:games/Dice-v0", "games:games/Dice"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_find_modules_in_the_current_folder(
    command: str, env_id: str, folder: Path
) -> None:
    package, name = command.split()
    env_id += ":2" if package == "benchmarks" else ""
    program = f"import sys; sys.path.pop(0); from {package}.app import app; app()"  # as `agym` does
    done = subprocess.run(
        [sys.executable, "-c", program, name, env_id, *COMMANDS[command]],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=patience(10),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
