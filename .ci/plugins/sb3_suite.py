"""A pytest plugin: SB3's own tests of its ``VecEnv`` classes, run over agym's; see .ci/sb3_suite.

``--agym=added`` runs every test that takes SubprocVecEnv as a parameter with AgymVecEnv too.
``--agym=instead`` puts AgymVecEnv in the place of both classes, everywhere: in this process for
DummyVecEnv, in two workers for SubprocVecEnv. What cannot hold there is deselected, and says why.
"""

from __future__ import annotations

import sys
from functools import partialmethod
from typing import Any

import pytest
from stable_baselines3.common.vec_env import SubprocVecEnv

from agym.sb3 import AgymVecEnv

# Tests that fail whatever class they are given.
THEIRS = {"test_discrete_obs": "takes CliffWalking-v0, which Gymnasium has no more"}

# Tests that cannot hold with another class in the place of both.
INSTEAD = {
    "test_vecenv_custom_calls": "reads DummyVecEnv.envs[0], the environment itself",
    "test_subproc_start_method": "an unknown start_method is a ValueError with other words",
    "test_check_nan": "two actions for one environment are refused before anything is sent",
}


class Serial(AgymVecEnv):
    """In the caller's thread, as DummyVecEnv."""

    __init__ = partialmethod(AgymVecEnv.__init__, backend="serial")


class TwoWorkers(AgymVecEnv):
    """In worker processes, as SubprocVecEnv."""

    __init__ = partialmethod(AgymVecEnv.__init__, workers=2)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--agym", choices=["added", "instead"], default="added")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--agym") == "instead":
        for module in [module for name, module in sys.modules.items() if "baselines3" in name]:
            for name, ours in (("DummyVecEnv", Serial), ("SubprocVecEnv", TwoWorkers)):
                if hasattr(module, name):
                    setattr(module, name, ours)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Wherever SubprocVecEnv is among the parameters of a test, add ours."""
    if metafunc.config.getoption("--agym") == "instead":
        return
    for mark in metafunc.definition.iter_markers("parametrize"):
        names, given, *rest = mark.args
        values = list(given)  # an iterator in newer releases
        values += [_with_ours(value) for value in values if _names_subproc(value)]
        object.__setattr__(mark, "args", (names, values, *rest))  # pytest's marks are frozen


def _names_subproc(value: Any) -> bool:
    return value is SubprocVecEnv or (isinstance(value, tuple) and SubprocVecEnv in value)


def _with_ours(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(AgymVecEnv if part is SubprocVecEnv else part for part in value)
    return AgymVecEnv


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {**THEIRS, **(INSTEAD if config.getoption("--agym") == "instead" else {})}
    out = [item for item in items if item.name.split("[")[0] in left_out]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]
