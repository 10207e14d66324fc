"""A worker's cost in isolation: a host in this process, and ``env.step`` alone."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode

from agym.core.hosts.sync_host import SyncHost
from agym.core.protocol.messages.operations import Operation, Reset
from agym.core.protocol.table import SlotTable
from benchmarks.measuring.workloads import Actions, Workload
from benchmarks.systems.base import System
from benchmarks.systems.runners import AgymProcess


class StepsAlone(System):
    """Only ``env.step``, in the shortest loop."""

    name = "env.step alone"

    def make(self, work: Workload, workers: int) -> Any:
        return [work.factory() for _ in range(work.num_envs)]

    def choose(self, actions: Actions) -> list[Any]:
        return actions.rows

    def reset(self) -> None:
        for env in self._envs:
            env.reset(seed=0)
        self._steps = [env.step for env in self._envs]

    def step(self, actions: Any) -> None:
        for step, action in zip(self._steps, actions):  # noqa: B905
            step(action)

    def close(self) -> None:
        for env in self._envs:
            env.close()


class HostAlone(System):
    """A worker's host, called as from its mailbox: actions in the table to results in the table."""

    name = "a worker's host"

    def make(self, work: Workload, workers: int) -> SyncHost:
        host = SyncHost([work.factory] * work.num_envs, 0, AutoresetMode.NEXT_STEP)
        described, failures = host.make()
        if failures:
            raise RuntimeError(failures[0].error)
        table = SlotTable(*described[0].layouts, work.num_envs, final=False)
        host.attach(table)
        table.actions[0][:] = self._batch
        self._plane = 0
        return host

    def choose(self, actions: Actions) -> list[Any]:
        # Always the same actions: writing them is the caller's cost, not the worker's.
        self._batch = actions.batches[0]
        return [None]

    def reset(self) -> None:
        seeds = [0] * self._num_envs
        self._envs.run(Operation(1, 0, self._num_envs, Reset(self._plane, seeds)))

    def step(self, actions: Any) -> None:
        self._plane = 1 - self._plane
        self._envs.step(0, self._num_envs, self._plane)


class RoundTrip(AgymProcess):
    """A round trip to one worker."""

    name = "round trip of one worker"

    def count(self, workers: int) -> int | None:
        return 1
