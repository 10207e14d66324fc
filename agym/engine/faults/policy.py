"""The ``on_fault`` option."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from agym.errors import UsageError
from agym.protocol.arguments import check_choice, check_count, check_seconds

FaultMode = Literal["raise", "restart", "replay"]


@dataclass(frozen=True)
class FaultPolicy:
    """What to do when an environment raises, hangs, or loses its worker.

    Example:
        >>> import agym
        >>> policy = agym.FaultPolicy("restart", max_restarts=10)
        >>> with agym.make("CartPole-v1", 2, on_fault=policy) as envs:
        ...     observations, infos = envs.reset(seed=0)

    Pass it to :func:`agym.make` where the mode alone is not enough.

    Attributes:
        mode: ``"raise"`` raises an error. ``"restart"`` replaces what failed in a step or reset and
            goes on: its row comes back truncated, with reward 0 and a :class:`~agym.Fault` as
            ``info["fault"]``. ``"replay"`` does the same, but environments that only shared the
            failed worker continue where they were.
        max_restarts: How often a worker, or an environment that raises, is replaced within
            ``restart_window`` before it is given up. Under ``"raise"`` only what misses a deadline
            is replaced.
        restart_window: In seconds.
        retry: How often in a row a failed episode is tried again, with a fresh environment: the
            next episode then begins as the failed one did. So tasks that fail often do not become
            rare. ``info["fault"].retry`` counts; see :doc:`/howto/retries`.
        replay_limit: How many actions per environment and episode are kept for a replay.
        snapshot_every: Under ``"replay"``, take each environment's state after so many steps, and
            replay from there; ``None`` to replay from the beginning of the episode. It pays where
            episodes are long and a snapshot is quick: one of Atari takes 0.2 ms. What cannot
            be copied is replayed from its beginning.
        capsule_dir: A folder for one small file per fault, from which ``agym replay FILE``
            reproduces it; ``None`` for no files.

    Raises:
        UsageError: A value is invalid.
    """

    mode: FaultMode = "raise"
    max_restarts: int = 10
    restart_window: float = 60.0
    retry: int = 0
    replay_limit: int = 10_000
    snapshot_every: int | None = None
    capsule_dir: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_choice("on_fault", self.mode, get_args(FaultMode), " or an agym.FaultPolicy")
        checked: dict[str, Any] = {
            "max_restarts": check_count("max_restarts", self.max_restarts, least=0),
            "replay_limit": check_count("replay_limit", self.replay_limit),
            "retry": check_count("retry", self.retry, least=0),
        }
        if self.retry and self.mode == "raise":
            raise UsageError(
                f"retry={self.retry} begins the episode of a replaced environment again, and"
                ' on_fault="raise" replaces none: take FaultPolicy("restart", retry=...)'
            )
        if self.snapshot_every is not None:
            checked["snapshot_every"] = check_count("snapshot_every", self.snapshot_every)
            if self.mode != "replay":
                raise UsageError(
                    f"snapshot_every={self.snapshot_every} is for replays: take"
                    ' FaultPolicy("replay", ...)'
                )
        check_seconds("restart_window", self.restart_window)
        if self.capsule_dir is not None:
            if not isinstance(self.capsule_dir, str | os.PathLike) or not str(self.capsule_dir):
                raise UsageError(f"capsule_dir={self.capsule_dir!r} must be the path of a folder")
            folder = Path(self.capsule_dir)
            if folder.exists() and not folder.is_dir():
                raise UsageError(f"capsule_dir={str(folder)!r} is no folder")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def tolerant(self) -> bool:
        """Whether faults are handled without being raised."""
        return self.mode != "raise"

    @property
    def folder(self) -> str | None:
        """The folder for capsules as a string."""
        return None if self.capsule_dir is None else os.fspath(self.capsule_dir)

    @property
    def follow_episodes(self) -> bool:
        """Whether to keep how the current episodes began."""
        return self.record_actions or self.retry > 0

    @property
    def record_actions(self) -> bool:
        """Whether to keep the actions of the current episodes."""
        return self.mode == "replay" or self.capsule_dir is not None
