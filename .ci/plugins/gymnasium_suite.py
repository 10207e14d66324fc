"""A pytest plugin: Gymnasium's own vector tests, run over agym's class; see .ci/gymnasium_suite.

AgymVectorEnv stands in the place of AsyncVectorEnv everywhere, also for ``make_vec``. What
cannot hold there is deselected, and says why.
"""

from __future__ import annotations

import gymnasium.vector
import gymnasium.vector.async_vector_env
import pytest

import agym

LEFT_OUT = {
    "test_custom_worker_with_semaphore": "gives AsyncVectorEnv's own worker function along",
}


def pytest_configure() -> None:
    for module in (gymnasium.vector, gymnasium.vector.async_vector_env):
        module.AsyncVectorEnv = agym.AgymVectorEnv  # type: ignore[attr-defined,misc]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    out = [item for item in items if {item.name, item.name.split("[")[0]} & LEFT_OUT.keys()]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]
