"""Messages and nodes: what a message to an actor costs, and what more nodes of a cluster bring.

Environments that only wait take no core, so that a cluster can be played on one machine: nodes are
Ray's own processes, and what is measured is what the driver and the messages can do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from agym._system.extras import require
from agym.api.make import make
from benchmarks.waiting_envs import WaitingEnv
from benchmarks.works import Work, sample_actions

# Logical CPUs of a node, and bytes of its object store.
CPUS, STORE = 16, 150_000_000


@dataclass(frozen=True)
class Message:
    """What messages cost.

    Attributes:
        work: The environments.
        batch: Seconds of a batch.
        cost: Seconds of it that are none of the environments', for each actor.
        share: The part of the batch that these are, all together.
    """

    work: str
    batch: float
    cost: float
    share: float


@dataclass(frozen=True)
class Scale:
    """Environments that wait, received first come, first served.

    Attributes:
        nodes: How many nodes.
        num_envs: How many environments in all.
        rate: Steps per second.
        driver: How much of a core the driver took.
    """

    nodes: int
    num_envs: int
    rate: float
    driver: float


@contextmanager
def nodes_here(count: int) -> Iterator[None]:
    """Be in a cluster of so many nodes on this machine."""
    ray, utils = require("ray", "ray"), require("ray.cluster_utils", "ray")
    node = {"num_cpus": CPUS, "object_store_memory": STORE}
    cluster = utils.Cluster(
        initialize_head=True, connect=False, head_node_args={**node, "include_dashboard": False}
    )
    try:
        for _ in range(count - 1):
            cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def measure_messages(work: Work, workers: int, seconds: float) -> Message:
    """Step for so long, and take off what the environments took."""
    actions = sample_actions(work).batches
    with make(
        work.factory, work.num_envs, backend="ray", workers=workers, output="array",
        autoreset="next_step",
    ) as envs:  # fmt: skip
        envs.reset(seed=0)
        batches, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            envs.step(actions[batches % len(actions)])
            batches += 1
        batch = (time.perf_counter() - begun) / batches
        beside = batch - envs.stats().work
    return Message(work.name, batch, beside / workers, beside / batch)


def measure_scale(nodes: Sequence[int], num_envs: int, delay: float, seconds: float) -> list[Scale]:
    """Step environments of more and more nodes, which are sent on as soon as half are there."""
    return [_measure_nodes(count, count * num_envs, delay, seconds) for count in nodes]


def _measure_nodes(nodes: int, num_envs: int, delay: float, seconds: float) -> Scale:
    env: Any = partial(WaitingEnv, delay)
    with make(env, num_envs, backend="ray", workers=nodes, output="array") as envs:
        envs.reset(seed=0)
        envs.send([0] * num_envs)
        _receive(envs, num_envs // 2, 2 * delay)
        computed, begun = time.process_time(), time.perf_counter()
        steps = _receive(envs, num_envs // 2, seconds)
        elapsed, computed = time.perf_counter() - begun, time.process_time() - computed
    return Scale(nodes, num_envs, steps / elapsed, computed / elapsed)


def _receive(envs: Any, least: int, seconds: float) -> int:
    """Receive and send on for so long; gives how many were received."""
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        ids = envs.recv(min_envs=least).env_ids
        steps += len(ids)
        envs.send([0] * len(ids), ids)
    return steps
