"""The episode rule is Gymnasium's: what ``SyncVectorEnv`` calls after each kind of row."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from gymnasium import Env
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from agym.core.hosts.episode import EpisodeRule, Phase

RUNNING, DUE, HELD, CUT = Phase


class Scripted(Env[Any, Any]):
    """Ends its episode where the script says so, and logs its calls."""

    observation_space = Box(0, 1, (1,))
    action_space = Discrete(2)

    def __init__(self) -> None:
        self.ends = False
        self.calls: list[str] = []

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self.calls.append("reset")
        return np.zeros(1, np.float32), {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.calls.append("step")
        return np.ones(1, np.float32), 1.0, self.ends, False, {}


CALLS = {RUNNING: ["step"], DUE: ["reset"], HELD: []}


@pytest.mark.parametrize("mode", AutoresetMode)
def test_gymnasium_calls_what_the_rule_says(mode: AutoresetMode) -> None:
    """All orders of steps that end an episode, steps that do not, and resets by the caller."""
    rule = EpisodeRule(mode)
    for events in product(("goes on", "ends", "reset"), repeat=5):
        env = Scripted()
        envs = SyncVectorEnv([lambda env=env: env], autoreset_mode=mode)
        envs.reset()
        phase = RUNNING
        for event in events:
            env.calls.clear()
            if event == "reset":
                envs.reset()
                phase = RUNNING
                assert env.calls == ["reset"]
                continue
            if phase is HELD:
                continue  # Gymnasium leaves this undefined
            env.ends = event == "ends"
            *_, terminated, _, _ = envs.step(np.zeros(1, np.int64))
            ended = bool(terminated[0])
            again = ["reset"] if ended and rule.resets_now else []
            assert env.calls == [*CALLS[phase], *again], (events, phase)
            phase = Phase(rule.table[phase, int(ended)])
        envs.close()
