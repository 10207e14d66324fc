"""Options of ``backend="ray"``, which are refused without Ray and before anything has started."""

from __future__ import annotations

from typing import Any

import pytest

import agym
from agym.backends import Ray

WRONG: dict[str, dict[str, Any]] = {
    "no-dict": {"resources": 2},
    "negative": {"resources": {"num_cpus": -1}},
    "no-number": {"resources": {"num_cpus": "1"}},
    "flag": {"resources": {"num_cpus": True}},
    "placement": {"placement": "scatter"},
    "runtime-env": {"runtime_env": "pip"},
    "address": {"address": 6379},
    "workers-per-node": {"workers_per_node": 0},
}


@pytest.mark.parametrize("options", WRONG.values(), ids=WRONG)
def test_what_cannot_work_is_refused_by_name(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(agym.UsageError, match=name):
        Ray(**options)


@pytest.mark.parametrize("backend", ["auto", "serial", "process"])
def test_other_backends_have_no_cluster(backend: str) -> None:
    with pytest.raises(agym.UsageError, match=r"use backend=agym\.backends\.Ray\(address="):
        agym.make("CartPole-v1", 2, backend=backend, address="auto")


def test_what_an_actor_takes_of_its_node() -> None:
    assert Ray().bundle == {"CPU": 1.0}
    assert Ray(workers_per_node=8).bundle == {"CPU": 8.0}
    custom = Ray(resources={"num_cpus": 0, "num_gpus": 0.5, "special": 2})
    assert custom.bundle == {"GPU": 0.5, "special": 2}
