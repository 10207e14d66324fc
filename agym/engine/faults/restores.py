"""What a replacement restores of the environment that it replaces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gymnasium.vector import AutoresetMode

from agym.engine.batches.env_rows import EnvRows
from agym.engine.faults.fault_log import FaultLog
from agym.engine.faults.policy import FaultPolicy
from agym.engine.faults.retries import Retries
from agym.engine.status import EnvStatus
from agym.protocol.messages.resets import EpisodeStart, RestoreSpec


class Restores:
    """Decides what replacements restore."""

    def __init__(
        self,
        policy: FaultPolicy,
        status: EnvStatus,
        rows: EnvRows,
        fault_log: FaultLog,
        retries: Retries,
        autoreset: AutoresetMode,
    ) -> None:
        self._policy = policy
        self._status = status
        self._rows = rows
        self._fault_log = fault_log
        self._retries = retries
        self._holds_or_waits = autoreset is not AutoresetMode.SAME_STEP

    def after_fault(self, slot: int, *, used: bool = True, innocent: bool = False) -> RestoreSpec:
        """Return what a new environment restores.

        Args:
            slot: The environment.
            used: The environment in place was used already: make another.
            innocent: It did not cause the fault, so it may continue where it was.
        """
        log = self._fault_log
        seed = log.seeds.get(slot)
        restore = RestoreSpec(
            used,
            seed,
            self._reseed(slot, seed),
            log.options.get(slot),
            retry=self._retries.start(slot),
        )
        if not self._policy.tolerant or not self._status.is_ready(slot):
            return restore
        observation, over = self._rows.last(slot)
        if observation is None:  # the first reset is still under way
            return restore
        restore = replace(restore, observation=observation)
        fault = log.pending.get(slot)
        if not innocent or fault is None or fault.culprit == slot or fault.kind == "raised":
            return restore  # includes an earlier truncation that was not reported yet
        if self._policy.mode != "replay":
            return restore
        episode = log.episode(slot)
        if episode is None:
            return restore
        if episode.checkpoint is not None:
            state, actions = episode.checkpoint
            return replace(restore, start=state, actions=[*actions])
        if episode.start is not None and episode.complete:
            return replace(restore, start=episode.start, actions=[*episode.actions])
        if any(over) and self._holds_or_waits:  # the episode is over already
            return replace(restore, start=EpisodeStart(), over=over)
        why = f"its episode is longer than replay_limit={self._policy.replay_limit}"
        if episode.start is None:
            why = "how its episode began is not known"
        log.pending[slot] = replace(fault, replay=why)
        return restore

    def on_request(self, slot: int, *, used: bool) -> RestoreSpec:
        """Return what an environment restores that the caller asked to replace."""
        return replace(self.after_fault(slot, used=used), observation=None, retry=None)

    def in_other_worker(self, slot: int) -> RestoreSpec:
        """Return what a healthy environment's successor in another worker restores."""
        log = self._fault_log
        return RestoreSpec(
            used=False,
            seed=log.seeds.get(slot),
            options=log.options.get(slot),
            observation=self._rows.last(slot)[0],
        )

    def _reseed(self, slot: int, seed: int | None) -> int | None:
        """Derive a replacement's seed from the original seed and the number of faults."""
        if seed is None:
            return None
        entropy = [seed, self._fault_log.counts[slot]]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])
