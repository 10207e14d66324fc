"""Probes: environments that count their steps, and that fail by themselves."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium

from agym.core.hosts.fault_injection import InjectedFault


class CounterEnv(gymnasium.Env[Any, Any]):
    """Observes its step count, so that lost and duplicated transitions are visible.

    The reward is the count, too. The reset draws the length of the episode, 2 to ``2 * length``
    steps. The episode is terminated if its length is even, otherwise truncated.
    """

    observation_space = gymnasium.spaces.Discrete(2**31)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(
        self,
        *,
        length: int = 50,
        seconds: float = 0.0,
        informs: bool = False,
        leaks: int = 0,
        render_mode: str | None = "ansi",
    ) -> None:
        """Set the episodes' length, cost and infos.

        Args:
            length: Average number of steps of an episode.
            seconds: How long a step sleeps.
            informs: Whether every info has the count and the action.
            leaks: Bytes that each episode leaks.
            render_mode: ``"ansi"`` or ``None``.
        """
        self.render_mode = render_mode
        self.steps = 0
        self._length = length
        self._seconds = seconds
        self._informs = informs
        self._leaks = leaks
        self._leaked: list[bytes] = []
        self._end = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        self._end = int(self.np_random.integers(2, 2 * self._length + 1))
        self._leak(self._leaks)
        return 0, {"count": 0} if self._informs else {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if self._seconds:
            time.sleep(self._seconds)
        self.steps += 1
        done = self.steps == self._end
        info = {"count": self.steps, "action": int(action)} if self._informs else {}
        odd = self._end % 2 == 1
        return self.steps, float(self.steps), done and not odd, done and odd, info

    def render(self) -> str:
        return f"step {self.steps}"

    def _leak(self, size: int) -> None:
        self._leaked.append(b"\1" * size)


class ChaoticEnv(CounterEnv):
    """Counts, and crashes its process, hangs, raises or leaks memory at random.

    All draws are from its own random stream, so they depend only on the seed and the number of
    steps. With a ``diary``, it writes a line ``name fault`` before each fault, so that the faults
    can be counted afterwards.
    """

    def __init__(
        self,
        *,
        crash: float = 0.0,
        hang: float = 0.0,
        error: float = 0.0,
        leak: float = 0.0,
        size: int = 1_000_000,
        name: str = "",
        diary: str | None = None,
        **how: Any,
    ) -> None:
        """Set the probabilities of the faults.

        Args:
            crash: Probability per step that the process ends, by exit or segfault in turn.
            hang: Probability that the step hangs for an hour.
            error: Probability that the step raises.
            leak: Probability that the step leaks ``size`` bytes.
            size: Bytes of a leak.
            name: Name of this environment in the diary.
            diary: Path of the diary, which several environments may share.
            **how: See :class:`CounterEnv`.
        """
        super().__init__(**how)
        self._chances = {"crash": crash, "hang": hang, "error": error, "leak": leak}
        self._size = size
        self._name = name
        self._diary = diary

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Count, or inject a fault.

        Raises:
            ChaosError: At random.
        """
        draw = self.np_random.random()
        for deed, chance in self._chances.items():
            if draw < chance:
                self._do(deed)
                break
            draw -= chance
        return super().step(action)

    def _do(self, deed: str) -> None:
        self._note(deed)
        if deed == "leak":
            self._leak(self._size)
        elif deed == "crash":
            InjectedFault("exit" if self.steps % 2 else "segfault").trigger()
        else:
            InjectedFault(deed).trigger()

    def _note(self, deed: str) -> None:
        if self._diary is not None:
            # A single write: other processes append to the file, too, and this one may end next.
            file = os.open(self._diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                os.write(file, f"{self._name} {deed}\n".encode())
            finally:
                os.close(file)
