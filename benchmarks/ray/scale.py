"""Messages and nodes: the cost of a message to an actor, and the scaling with nodes.

Environments that only wait need no core, so one machine can simulate a cluster. Its nodes are Ray's
processes; the cost of the driver and its messages is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from agym import make
from agym.core._system.extras import require
from benchmarks.measuring.waiting_envs import WaitingEnv
from benchmarks.measuring.workloads import Workload, sample_actions

# Logical CPUs of a node, and bytes of its object store.
CPUS, STORE = 16, 150_000_000


@dataclass(frozen=True)
class Message:
    """Cost of messages.

    Attributes:
        work: Name of the workload.
        batch: Seconds per batch.
        cost: Seconds per batch and actor, without the environments' time.
        share: Share of these seconds, all together, in the batch.
    """

    work: str
    batch: float
    cost: float
    share: float


@dataclass(frozen=True)
class Scale:
    """Throughput of waiting environments, received first come, first served.

    Attributes:
        nodes: Number of nodes.
        num_envs: Number of environments in all.
        rate: Steps per second.
        driver: CPU time of the driver, as a share of a core.
    """

    nodes: int
    num_envs: int
    rate: float
    driver: float


@contextmanager
def nodes_here(count: int) -> Iterator[None]:
    """Connect to a cluster of ``count`` nodes on this machine."""
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


def measure_messages(work: Workload, workers: int, seconds: float) -> Message:
    """Step for ``seconds``, and subtract the environments' time."""
    actions = sample_actions(work).batches
    with make(
        work.factory, work.num_envs, backend="ray", workers=workers, output="array",
        autoreset="next_step",
    ) as envs:  # fmt: skip
        envs.reset(seed=0)
        batches, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            envs.step(actions[batches % len(actions)])
            batches += 1
        batch = (time.perf_counter() - started) / batches
        beside = batch - envs.stats().work
    return Message(work.name, batch, beside / workers, beside / batch)


def measure_scale(nodes: Sequence[int], num_envs: int, delay: float, seconds: float) -> list[Scale]:
    """Step environments on more and more nodes, sending again as soon as half are received."""
    return [_measure_nodes(count, count * num_envs, delay, seconds) for count in nodes]


def _measure_nodes(nodes: int, num_envs: int, delay: float, seconds: float) -> Scale:
    env: Any = partial(WaitingEnv, delay)
    with make(env, num_envs, backend="ray", workers=nodes, output="array") as envs:
        envs.reset(seed=0)
        envs.send([0] * num_envs)
        _receive(envs, num_envs // 2, 2 * delay)
        computed, started = time.process_time(), time.perf_counter()
        steps = _receive(envs, num_envs // 2, seconds)
        elapsed, computed = time.perf_counter() - started, time.process_time() - computed
    return Scale(nodes, num_envs, steps / elapsed, computed / elapsed)


def _receive(envs: Any, least: int, seconds: float) -> int:
    """Receive and send again for ``seconds``; return the number of steps received."""
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        ids = envs.recv(min_envs=least).env_ids
        steps += len(ids)
        envs.send([0] * len(ids), ids)
    return steps
