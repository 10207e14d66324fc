"""A program with EnvPool's protocol, whose environments are done when a test says so."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from tests.support.envs.vector_envs import Trap


@dataclass
class Hand(Trap):
    """What a test does to the pools.

    Attributes:
        slow: Environments that are done only after :meth:`let`.
        pools: Those that were made.
    """

    slow: set[int] = field(default_factory=set)
    pools: list[Pool] = field(default_factory=list)

    def let(self, *ids: int) -> None:
        """Let slow environments of the latest pool be done with what they do."""
        self.pools[-1].let(ids)


class Pool(VectorEnv[Any, Any, Any]):
    """Observes ``[id, steps, episodes]``; environment i ends after 3 + i steps.

    It is used by its rules or raises: one sends, one receives, and nothing is sent twice.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "reset_mask": True}  # noqa: RUF012

    def __init__(
        self, num_envs: int, batch_size: int = 2, hand: Hand | None = None, seed: int = 0
    ) -> None:
        self.hand = hand or Hand()
        self.hand.spring("make")
        self.hand.made.append(num_envs)
        self.hand.pools.append(self)
        self.num_envs, self.batch_size, self.seed = num_envs, batch_size, seed
        self.single_observation_space = spaces.Box(0, 10**6, (3,), np.int64)
        self.single_action_space = spaces.Discrete(10)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.steps, self.episodes = np.zeros((2, num_envs), np.int64)
        self.over = np.ones(num_envs, bool)
        self.busy: dict[int, float] = {}
        self.slow: dict[int, tuple[Any, ...]] = {}
        self.done: deque[tuple[Any, ...]] = deque()
        self.changed = threading.Condition()
        self.senders, self.receivers = threading.Lock(), threading.Lock()

    def async_reset(self) -> None:
        self._reset(np.arange(self.num_envs))

    def _reset(self, ids: Any) -> None:
        self.hand.spring("reset")
        self.over[ids] = True
        self._begin(ids, np.zeros(len(ids)))

    def send(self, actions: Any, ids: Any) -> None:
        self.hand.spring("send")
        self._begin(ids, actions)

    def _begin(self, ids: Any, actions: Any) -> None:
        assert self.senders.acquire(blocking=False), "two send at the same time"
        assert len(ids) == len(actions)
        with self.changed:
            for i, action in zip(ids.tolist(), actions.tolist(), strict=True):
                assert i not in self.busy, "it has something to do"
                self.busy[i] = action
                if i in self.hand.slow:
                    self.slow[i] = ()
                    self.changed.notify_all()
                else:
                    self._finish(i)
        self.senders.release()

    def await_slow(self, *ids: int) -> None:
        """Wait until environments are at work that are done only when let."""
        with self.changed:
            self.changed.wait_for(lambda: self.slow.keys() >= {*ids})

    def let(self, ids: Any) -> None:
        with self.changed:
            for i in ids:
                self.changed.wait_for(partial(self.slow.__contains__, i))
                del self.slow[i]
                self._finish(i)

    def _finish(self, i: int) -> None:
        action, resets = self.busy[i], self.over[i]
        self.steps[i] = 0 if resets else self.steps[i] + 1
        self.episodes[i] += resets
        self.over[i] = self.steps[i] >= 3 + i
        observation = [i, self.steps[i], self.episodes[i]]
        self.done.append((i, observation, 0.0 if resets else action, self.over[i]))
        self.changed.notify_all()

    def recv(self) -> Any:
        assert self.receivers.acquire(blocking=False), "two receive at the same time"
        with self.changed:
            self.changed.notify_all()
            self.changed.wait_for(lambda: len(self.done) >= self.batch_size)
            rows = [self.done.popleft() for _ in range(self.batch_size)]
            ids, observations, rewards, over = map(np.array, zip(*rows, strict=True))
            for i in ids.tolist():
                del self.busy[i]
        self.receivers.release()
        self.hand.spring("recv")
        info = {"env_id": ids + (100 if self.hand.where == "nonsense" else 0)}
        return observations, rewards, over, np.zeros_like(over), info

    def reset(self, **_: Any) -> Any:
        """Where all come at a time."""
        self.async_reset()
        observations, *_, info = self.recv()
        return observations, info

    def step(self, actions: Any) -> Any:
        self.send(actions, np.arange(self.num_envs))
        return self.recv()

    def render(self) -> Any:
        assert self.receivers.acquire(blocking=False), "it renders while it steps"
        self.receivers.release()
        return tuple(f"frame {i}" for i in range(self.num_envs))

    def close(self, **_: Any) -> None:
        assert self.receivers.acquire(blocking=False), "it is closed while it steps"
        self.receivers.release()
        self.hand.closed += 1


class Pairs(VectorEnv[Any, Any, Any]):
    """Gives two at a time, and wants these sent before the next, as ALE's does."""

    batch_size = 2

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = self.single_action_space = spaces.Discrete(2)

    def send(self, actions: Any) -> None:
        raise AssertionError

    def recv(self) -> Any:
        raise AssertionError
