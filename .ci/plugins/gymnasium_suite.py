"""A pytest plugin: Gymnasium's own vector tests, run over agym's class; see .ci/gymnasium_suite.

AgymVectorEnv, on the backend that ``--agym`` names, stands in the place of AsyncVectorEnv
everywhere, also for ``make_vec``. What cannot hold there is deselected, and says why.
"""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import gymnasium.vector
import gymnasium.vector.async_vector_env
import pytest

import agym

BACKENDS: dict[str, Any] = {
    "auto": "auto",
    "thread": "thread",
    "process": agym.backends.Process(workers=2, start_method="fork"),
}

LEFT_OUT = {
    "test_custom_worker_with_semaphore": "gives AsyncVectorEnv's own worker function along",
    "test_custom_space_async_vector_env_shared_memory": "custom spaces work with it here",
}

# With "auto" these environments live in the caller's thread, where a timeout is an error.
NOT_AUTO = {"test_reset_timeout_async_vector_env", "test_step_timeout_async_vector_env"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--agym", choices=[*BACKENDS], default="auto")


def pytest_configure(config: pytest.Config) -> None:
    chosen = BACKENDS[config.getoption("--agym")]
    ours: Any = agym.AgymVectorEnv
    ours.__init__ = partialmethod(ours.__init__, backend=chosen)
    for module in (gymnasium.vector, gymnasium.vector.async_vector_env):
        module.AsyncVectorEnv = ours  # type: ignore[attr-defined]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {*LEFT_OUT, *(NOT_AUTO if config.getoption("--agym") == "auto" else ())}
    out = [item for item in items if {item.name, item.name.split("[")[0]} & left_out]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]
