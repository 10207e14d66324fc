"""The episode rule: its whole table, and against Gymnasium's SyncVectorEnv."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from gymnasium import Env
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from agym.core.hosts.episode import AFTER_END, Episode, EpisodeRule, Phase

NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
RUNNING, DUE, HELD, CUT = Phase

# The next phase, for a row that did not end the episode and for one that did.
TABLE = {
    NEXT: {
        RUNNING: (RUNNING, DUE),
        DUE: (RUNNING, RUNNING),
        HELD: (HELD, HELD),
        CUT: (RUNNING, DUE),
    },
    SAME: {
        RUNNING: (RUNNING, RUNNING),
        DUE: (RUNNING, RUNNING),
        HELD: (HELD, HELD),
        CUT: (RUNNING, RUNNING),
    },
    DISABLED: {
        RUNNING: (RUNNING, HELD),
        DUE: (RUNNING, RUNNING),
        HELD: (HELD, HELD),
        CUT: (RUNNING, HELD),
    },
}


@pytest.mark.parametrize("mode", AutoresetMode)
def test_the_table_is_complete(mode: AutoresetMode) -> None:
    rule = EpisodeRule(mode)
    cases = [*product(Phase, (False, True))]
    phases, ended = (np.array(column, np.int8) for column in zip(*cases, strict=True))
    after = rule.table[phases, ended]
    assert [*after] == [TABLE[mode][phase][each] for phase, each in cases]


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("phase", [RUNNING, CUT])
def test_one_environment_follows_the_same_rule(mode: AutoresetMode, phase: Phase) -> None:
    episode = Episode(phase)
    episode.end(EpisodeRule(mode), (np.zeros(2), 1.0, True, False, {}))
    assert episode.phase is TABLE[mode][phase][True]


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


@pytest.mark.parametrize("mode", AutoresetMode)
def test_an_episode_from_its_reset_to_what_follows_its_end(mode: AutoresetMode) -> None:
    rule, episode = EpisodeRule(mode), Episode()
    episode.start()
    assert (episode.phase, episode.number) == (RUNNING, 1)
    observation = np.zeros(2)
    episode.end(rule, (observation, 3.0, True, False, {"key": 1}))
    observation[:] = 7  # the environment reuses its array
    assert episode.phase is AFTER_END[mode]
    if mode is DISABLED:
        kept, reward, terminated, truncated, info = episode.known_row()
        assert [*kept] == [0, 0]
        assert (reward, terminated, truncated, info) == (0.0, True, False, {})
    episode.start()
    assert (episode.phase, episode.row, episode.number) == (RUNNING, None, 2)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_replacement_truncates_the_lost_episode_once(mode: AutoresetMode) -> None:
    rule, episode = EpisodeRule(mode), Episode()
    episode.cut_off(5)
    assert episode.phase is CUT
    row = episode.known_row()
    assert row == (5, 0.0, False, True, {})
    episode.end(rule, row)
    assert episode.phase is AFTER_END[mode]
    episode.start()
    assert episode.phase is RUNNING


def test_a_replacement_of_what_was_never_reset_must_be_reset() -> None:
    episode = Episode()
    episode.cut_off(None)
    with pytest.raises(RuntimeError, match="reset it first"):
        episode.known_row()
