"""Ids as Gymnasium takes them: with the module that registers them, and without a version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import agym
from tests.support.patience import patience
from tests.support.scripts import ROOT, run

# A package of which nothing but its name is known to the program; and one that only registers.
PACKAGE = {
    "games/__init__.py": """
        import gymnasium
        for version, sides in enumerate((6, 20)):
            gymnasium.register(
                f"games/Dice-v{version}", "games.dice:Dice", kwargs={"sides": sides},
                vector_entry_point="games.dice:many",
            )
        gymnasium.register("games/Plain", "games.dice:Dice", kwargs={"sides": 3})
    """,
    "games/dice.py": """
        import gymnasium, numpy, sys

        class Dice(gymnasium.Env):
            metadata = {"render_modes": ["rgb_array"], "render_fps": 50}
            observation_space = gymnasium.spaces.Discrete(1000)
            action_space = gymnasium.spaces.Discrete(2)

            def __init__(self, sides, render_mode=None):
                self.sides, self.render_mode = sides, render_mode
                self.plugged = "plugged.in_" in sys.modules

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                return self.sides, {}

            def step(self, action):
                return self.sides, 0.0, False, False, {}

            def render(self):
                return numpy.zeros((16, 16, 3), numpy.uint8)

        def many(num_envs, sides, **kwargs):
            return gymnasium.vector.SyncVectorEnv([lambda: Dice(sides)] * num_envs)
    """,
    "plugged/__init__.py": "",
    "plugged/in_.py": """
        import gymnasium
        gymnasium.register("Plugged-v3", "games.dice:Dice", kwargs={"sides": 4})
    """,
    "broken.py": "import no_such_package\n",
}

IDS = {
    "games:games/Dice-v0": 6,
    "games:games/Dice": 20,
    "games:games/Plain": 3,
    "plugged.in_:Plugged-v3": 4,
    "plugged.in_:Plugged": 4,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, code in PACKAGE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(dedent(code))
    return tmp_path


CALLS = {
    "make": """
        with agym.make(ID, 3, backend=BACKEND, workers=2) as envs:
            print(*map(int, envs.reset()[0]), all(envs.call("plugged")) == ("plugged" in ID))
    """,
    "make_async": """
        async def main():
            async with agym.make_async(ID, 3, backend=BACKEND, workers=2) as envs:
                print(*(await envs.reset())[0], True)
        asyncio.run(main())
    """,
    "make_vec": """
        envs = agym.make_vec(ID, 3, backend=BACKEND, workers=2)
        print(*envs.reset()[0], True)
        envs.close()
    """,
    "sb3": """
        envs = agym.sb3.make_vec_env(ID, 3, backend=BACKEND, workers=2)
        print(*envs.reset(), all(envs.get_attr("plugged")) == ("plugged" in ID))
        envs.close()
    """,
    "AgymVectorEnv": """
        envs = agym.AgymVectorEnv([lambda: gymnasium.make(ID)] * 3, workers=2)
        print(*envs.reset()[0], True)
        envs.close()
    """,
    "plan": """
        found = agym.plan(ID, 1)
        with agym.make(ID, 3) as envs:  # which measures one
            print(*map(int, envs.reset()[0]), found.name == ID.rpartition(":")[2])
    """,
}


@pytest.mark.once
@pytest.mark.parametrize("call", CALLS)
def test_every_function(call: str, folder: Path) -> None:
    if call == "sb3":
        pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    ids = ["games:games/Plain", "plugged.in_:Plugged-v3"]
    beginning = "import asyncio, gymnasium, agym\n"
    for env_id in ids:
        for backend in ("process", "thread") if call == "make" else ("process",):
            code = dedent(CALLS[call]).replace("ID", repr(env_id))
            beginning += code.replace("BACKEND", repr(backend))
    exit_code, out, err = run(folder, beginning, seconds=6)
    assert (exit_code, err) == (0, ""), err
    assert set(out.splitlines()) == {"3 3 3 True", "4 4 4 True"}


@pytest.mark.full
def test_without_a_version_it_is_the_latest(folder: Path) -> None:
    """Gymnasium says which one, and so does agym."""
    code = """
        import warnings, agym, gymnasium
        for env_id, sides in IDS.items():
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                gymnasium.make(env_id).close()
            theirs = len(warned) and "latest" in str(warned[0].message)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                with agym.make(env_id, 2, backend="process", workers=1) as envs:
                    assert envs.reset()[0] == [sides, sides], env_id
            ours = len(warned) and "latest" in str(warned[0].message)
            assert ours == theirs, warned
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with agym.make(env_id, 2, backend="process", workers=1) as envs:
                    assert envs.reset()[0] == [sides, sides], env_id
            if sides == 20:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    with agym.make(env_id, 2, backend="vector") as envs:
                        assert [*envs.reset()[0]] == [20, 20]
        print("done")
    """.replace("IDS", repr(IDS))
    exit_code, out, err = run(folder, code, seconds=6)
    assert (exit_code, out, err) == (0, "done\n", ""), err


@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        ("no_such_module:Env-v0", "No module named 'no_such_module'"),
        ("broken:Env-v0", "No module named 'no_such_package'"),
        ("json:NoSuchEnv-v0", "The module 'json' was imported, but did not register it"),
        ("json:CartPole-v9", "doesn't exist"),
        (":CartPole-v1", "'' is not the name of a module"),
        ("a:b:CartPole-v1", "'a:b' is not the name of a module"),
        (".games:games/Dice-v0", "'.games' is not the name of a module"),
        ("json:", "Malformed"),
        ("NoSuchEnv", "NoSuchEnv` doesn't exist"),
        ("json:Cart Pole", "Malformed"),
    ],
)
def test_what_is_wrong_with_an_id_is_said(
    env_id: str, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(agym.UsageError) as refused:
        agym.make(env_id)
    assert f"env={env_id!r} cannot be found: " in str(refused.value)
    assert said in str(refused.value)


COMMANDS = {
    "demo": ["ID", "-n", "2", "--steps", "5", "--workers", "1"],
    "plan": ["ID", "2"],
    "record": ["ID", "-n", "2", "-o", "out.gif", "--steps", "3"],
    "benchmarks throughput": ["ID:2", "--seconds", "0.01", "--repeats", "1", "--workers", "1"],
}


@pytest.mark.full
@pytest.mark.parametrize("env_id", ["games:games/Dice-v0", "games:games/Dice"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_find_modules_in_the_current_folder(
    command: str, env_id: str, folder: Path
) -> None:
    words = [word.replace("ID", env_id) for word in COMMANDS[command]]
    package, name = ("benchmarks", command.split()[1]) if " " in command else ("agym.cli", command)
    program = f"import sys; sys.path.pop(0); from {package}.app import app; app()"  # as `agym` does
    done = subprocess.run(
        [sys.executable, "-c", program, name, *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=patience(10),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
