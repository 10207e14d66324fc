"""A Ray cluster for the tests: nodes of its own on this machine, and nothing left on them."""

from __future__ import annotations

import gc
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agym.core._system.extras import installed
from tests.support.patience import deadline, patience

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"

if installed("ray"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
        from ray import cluster_utils

NODE = {"num_cpus": 4, "object_store_memory": 150_000_000}


def quick() -> dict[str, int]:
    """How soon a node is taken for dead, which are 15 seconds otherwise."""
    check = int(1000 * deadline(0.6))
    return {
        "health_check_initial_delay_ms": check,
        "health_check_period_ms": check,
        "health_check_timeout_ms": check,
        "health_check_failure_threshold": 3,
    }


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Two nodes, which this process has joined; each has room for four actors."""
    pytest.importorskip("ray", reason="the extra `ray`")
    head = {**NODE, "include_dashboard": False, "_system_config": quick()}
    nodes = cluster_utils.Cluster(initialize_head=True, connect=False, head_node_args=head)
    try:
        nodes.add_node(**NODE)
        ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture
def folder(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a script, which finds the cluster in its environment."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    return tmp_path


@pytest.hookimpl(tryfirst=True)  # before the core is selected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All in one process, where tests run in several: they share the cluster."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("ray"))
            item.add_marker(pytest.mark.full)


def free_cpus() -> float:
    return float(ray.available_resources().get("CPU", 0.0))


@pytest.fixture(autouse=True)
def nothing_outlives(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ray keeps threads, processes and connections; but all that actors took is given back."""
    if "cluster" not in request.fixturenames:
        yield
        return
    request.getfixturevalue("cluster")
    yield
    gc.collect()
    end = time.monotonic() + patience()
    while (free := free_cpus()) < ray.cluster_resources()["CPU"] and time.monotonic() < end:
        time.sleep(0.05)
    assert free == ray.cluster_resources()["CPU"], "an actor outlived the test"
