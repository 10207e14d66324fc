"""SB3 and torch are imported where they are used, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.backends import Process
from tests.support.patience import patience
from tests.support.scripts import install_command
from tests.support.training import vec_envs

SPAWNED = {"backend": Process(start_method="spawn"), "workers": 2}

assert vec_envs


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=patience(5),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_agym_does_not_import_sb3() -> None:
    loaded = python("import agym, sys; agym.sb3.make_vec_env; print(*sys.modules)").split()
    assert "agym.sb3" in loaded
    assert not {"stable_baselines3", "torch"}.intersection(loaded)


def test_its_functions_are_imported_by_path() -> None:
    python("from agym.sb3 import make_vec_env; import agym; assert agym.sb3.make_vec_env")


def test_what_to_install_is_said() -> None:
    code = """
import sys
sys.modules["stable_baselines3"] = None
import agym
for use in (lambda: agym.sb3.make_vec_env("CartPole-v1"), lambda: agym.sb3.AgymVecEnv):
    try:
        use()
    except agym.MissingExtraError as error:
        print(error)
try:
    agym.sb3.nothing
except AttributeError as error:
    print(error)
"""
    first, second, third = python(code).splitlines()
    assert first == second == f"stable_baselines3 is not installed: {install_command('sb3')}"
    assert "nothing" in third


def loaded_modules(env: Any) -> Any:
    env.get_wrapper_attr("unwrapped").loaded = sorted(sys.modules)
    return env


def loaded_later(env: Any) -> Any:
    package = __import__("stable_baselines3")
    algorithm = __import__("stable_baselines3", fromlist=["PPO"]).PPO
    env.unwrapped.found = (package.__version__, algorithm.__name__)
    return env


def test_workers_need_no_torch_for_a_monitor() -> None:
    vec_env = agym.sb3.make_vec_env("CartPole-v1", 4, wrapper_class=loaded_modules, **SPAWNED)
    for loaded in vec_env.get_attr("loaded"):
        assert "stable_baselines3.common.monitor" in loaded
        assert "torch" not in loaded
    monitor = pytest.importorskip("stable_baselines3.common.monitor").Monitor
    assert vec_env.env_is_wrapped(monitor) == [True] * 4
    vec_env.close()


def test_an_environment_may_use_all_of_sb3_in_a_worker() -> None:
    vec_env = agym.sb3.make_vec_env("CartPole-v1", 2, wrapper_class=loaded_later, **SPAWNED)
    version = pytest.importorskip("stable_baselines3").__version__
    assert vec_env.get_attr("found") == [(version, "PPO")] * 2
    vec_env.close()


def test_ids_that_only_the_script_knows(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
import gymnasium
import agym

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return 0, {}
    def step(self, action):
        return 1, 1.0, False, False, {}

gymnasium.register("Mine-v0", Mine)
env = agym.sb3.make_vec_env("Mine-v0", 3, seed=0, workers=2)
env.reset()
print(env.step([0, 1, 0])[0].tolist())
env.close()
"""
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=patience(5)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1, 1, 1]"
