"""Predicts whether a Ray cluster pays: the cost of its messages against its number of CPUs."""

from __future__ import annotations

from dataclasses import replace

from agym.api.auto.bench import Bench
from agym.api.auto.measure_machine import LARGE
from agym.backends.options import Ray
from agym.backends.ray.backend import RayBackend
from agym.backends.ray.cluster import MEMBERS
from agym.planning.choice import decide, readable
from agym.planning.model import (
    Candidate,
    Cost,
    Machine,
    Profile,
    Requirements,
    predict,
    worker_counts,
)
from agym.planning.plans import Plan

# The most actors that are considered.
MOST = 1024


def measure_cluster(cluster: Ray, local: Machine) -> Machine:
    """Join a cluster, and measure its costs with environments that do nothing.

    Args:
        cluster: Which cluster.
        local: This machine's costs.

    Returns:
        The same with the costs of ``"ray"``, and with the cluster's CPUs for cores.

    Raises:
        MissingExtraError: Ray is not installed.
        UsageError: There is no such cluster.
    """
    ray, joined = MEMBERS.join(replace(cluster, workers=2))
    try:
        cores = max(1, int(ray.cluster_resources().get("CPU", 0)))
        host = local.costs["process"].host
        with Bench(RayBackend, 1, 1, cluster=cluster) as one:
            single = one.seconds()
        with Bench(RayBackend, 1, 1, size=LARGE, cluster=cluster) as large:
            byte = max(0.0, large.seconds() - single) / LARGE
        worker = 0.0
        if cores > 1:
            with Bench(RayBackend, 2, 2, cluster=cluster) as two:
                worker = max(0.0, two.seconds() - single)
    finally:
        if joined:
            MEMBERS.leave()
    packing = local.costs["process"]
    cost = Cost(
        max(0.0, single - worker - host), worker, host, byte, packing.info, packing.info_byte
    )
    return replace(local, cores=cores, costs={**local.costs, "ray": cost})


def with_cluster(made: Plan, profile: Profile, needs: Requirements, cluster: Ray) -> Plan:
    """Add a cluster to a plan, and say whether it pays."""
    assert made.machine is not None
    machine = measure_cluster(cluster, made.machine)
    counts = worker_counts(min(machine.cores, needs.num_envs, MOST))
    if needs.workers is not None:
        counts = [min(needs.workers, needs.num_envs)]
    actors = [Candidate("ray", k, *predict(profile, machine, needs, "ray", k)) for k in counts]
    best = min(actors, key=lambda one: one.predicted or 0.0)
    found = [*made.candidates, *actors]
    chosen = decide(found).chosen or made.chosen
    cost = machine.costs["ray"]
    message = f"a message to an actor and back takes {readable(cost.batch + cost.worker)}"
    here, there = made.chosen.predicted, best.predicted
    said = f"A cluster of {machine.cores} CPUs"
    if chosen.backend == "ray" and here and chosen.predicted:
        said += (
            f" pays: {chosen.name} is predicted to take {readable(chosen.predicted)} per batch,"
            f" {here / chosen.predicted:.2f} times as fast as {made.chosen.name}; {message}."
        )
        why = said
    else:
        said += (
            f" does not pay: {best.name} is predicted to take {readable(there)} per batch,"
            f" and {message}."
        )
        why = f"{made.why} {said}"
    return replace(made, candidates=tuple(found), chosen=chosen, why=why, machine=machine)
