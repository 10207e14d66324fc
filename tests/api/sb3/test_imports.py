"""SB3 and torch are imported where they are used, and nowhere else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import agym
from agym.backends import Process
from tests.support.scripts import install_command, run
from tests.support.training import vec_envs

SPAWNED = {"backend": Process(start_method="spawn"), "workers": 2}

assert vec_envs


def test_agym_does_not_import_sb3(tmp_path: Path) -> None:
    """And its functions are imported by path."""
    script = """
        import agym, sys
        from agym.sb3 import make_vec_env
        assert agym.sb3.make_vec_env is make_vec_env
        print(*sys.modules)
    """
    exit_code, out, err = run(tmp_path, script)
    assert (exit_code, err) == (0, "")
    assert not {"stable_baselines3", "torch"}.intersection(out.split())


def test_what_to_install_is_said(tmp_path: Path) -> None:
    script = """
        import sys
        sys.modules["stable_baselines3"] = None
        import agym
        for use in ("agym.sb3.make_vec_env('CartPole-v1')", "agym.sb3.AgymVecEnv", "agym.sb3.no"):
            try:
                eval(use)
            except (agym.MissingExtraError, AttributeError) as error:
                print(error)
    """
    exit_code, out, err = run(tmp_path, script)
    first, second, third = out.splitlines()
    assert (exit_code, err) == (0, "")
    assert first == second == f"stable_baselines3 is not installed: {install_command('sb3')}"
    assert "'no'" in third


def loaded_modules(env: Any) -> Any:
    env.unwrapped.loaded = sorted(sys.modules)
    return env


def loaded_later(env: Any) -> Any:
    package = __import__("stable_baselines3", fromlist=["PPO"])
    env.unwrapped.found = (package.__version__, package.PPO.__name__)
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
