"""What follows an episode's end: the one rule for every host and for replays.

The rules are Gymnasium's (https://farama.org/Vector-Autoreset-Mode), with one addition: under
``disabled``, stepping a finished environment is defined. The environment is *on hold* until the
next reset, so that a loop ``while not all(finished)`` ends. The *phase* of an environment decides
what its next step does, and the rule derives the next phase from the phase and the row's flags::

                 the row ended the episode:   next_step   same_step           disabled
    RUNNING      or not: RUNNING              DUE         RUNNING, reset now  HELD
    DUE          RUNNING
    HELD         HELD
    CUT                                       DUE         RUNNING, reset now  HELD

A reset leads to ``RUNNING`` from every phase. A replacement after a fault starts with ``CUT`` if
the episode of its predecessor is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from gymnasium.vector import AutoresetMode

from agym.core.protocol.messages.resets import EpisodeStart
from agym.core.protocol.typing import Array
from agym.core.protocol.value_copies import copy_value
from agym.errors import UsageError

MODES: Final = {mode.name.lower(): mode for mode in AutoresetMode}


class Phase(IntEnum):
    """What the next step of an environment does."""

    RUNNING = 0  # steps it
    DUE = 1  # resets it, and ignores the action
    HELD = 2  # repeats the row that ended the episode, without reward and info
    CUT = 3  # truncates the lost episode, at the last known observation


# The phase after a row that ended an episode. Under same-step autoreset the host resets before it
# returns the row.
AFTER_END: Final = {
    AutoresetMode.NEXT_STEP: Phase.DUE,
    AutoresetMode.SAME_STEP: Phase.RUNNING,
    AutoresetMode.DISABLED: Phase.HELD,
}


class EpisodeRule:
    """The rule of one autoreset mode.

    Attributes:
        resets_now: Whether the step that ends an episode also resets.
        over: The phase after a step that ended an episode.
    """

    def __init__(self, mode: AutoresetMode) -> None:
        self.resets_now = mode is AutoresetMode.SAME_STEP
        self.over = over = AFTER_END[mode]
        self._waiting = Phase.DUE if self.resets_now else over
        after = {
            Phase.RUNNING: (Phase.RUNNING, over),
            Phase.DUE: (Phase.RUNNING, Phase.RUNNING),
            Phase.HELD: (Phase.HELD, Phase.HELD),
            Phase.CUT: (Phase.RUNNING, over),
        }
        self._after = np.array([after[phase] for phase in Phase], np.int8).ravel()

    def after(self, phases: Array, ended: Array) -> Array:
        """Return the phases of environments after rows that ``ended`` their episodes, or did not.

        Args:
            phases: Their phases before, ``int8[n]``.
            ended: ``bool[n]``.
        """
        return self._after.take(2 * phases + ended)

    def restored(self, episode: Episode, observation: Any, flags: tuple[bool, bool]) -> Episode:
        """Return a copy of a snapshot's episode, which may come from another autoreset mode.

        An episode that has ended waits for a reset as in this mode: by the next step, which is
        ``DUE`` also under same-step autoreset, or by the caller.

        Args:
            episode: The episode.
            observation: The snapshot's last observation.
            flags: The flags of the same row.
        """
        episode = episode.copy()
        if episode.phase in (Phase.DUE, Phase.HELD):
            episode.wait(self._waiting, (observation, 0.0, *flags, {}))
        return episode


@dataclass(slots=True)
class Episode:
    """The episode of one environment.

    Attributes:
        phase: What its next step does.
        row: The row that the next step returns without a call: on hold, or after a cut.
        number: Number of episodes started so far.
        seed: Seed of the last explicit reset.
        options: Options of that reset, which automatic resets repeat.
        reseed: Seed for the next reset of a replacement, if that reset has no seed.
        retry: How the next reset must start, to retry a failed episode, if it has no seed.
    """

    phase: Phase = Phase.RUNNING
    row: tuple[Any, ...] | None = None
    number: int = 0
    seed: int | None = None
    options: dict[str, Any] | None = None
    reseed: int | None = None
    retry: EpisodeStart | None = None

    def copy(self) -> Episode:
        """Return a copy, in a quarter of the time of ``dataclasses.replace``."""
        return Episode(
            self.phase, self.row, self.number, self.seed, self.options, self.reseed, self.retry,
        )  # fmt: skip

    def start(self) -> None:
        """Note a reset."""
        self.phase, self.row = Phase.RUNNING, None
        self.number += 1

    def wait(self, phase: Phase, row: tuple[Any, ...]) -> None:
        """Set the phase that follows the row which ended the episode."""
        self.phase, self.row = phase, None
        if phase is Phase.HELD:  # a copy, because the environment may reuse its arrays
            self.row = (copy_value(row[0]), 0.0, row[2], row[3], {})

    def cut_off(self, observation: Any) -> None:
        """Note that the episode is lost; ``observation`` is the last known observation, if any."""
        self.phase, self.row = Phase.CUT, (observation, 0.0, False, True, {})

    def known_row(self) -> tuple[Any, ...]:
        """Return the row of an environment that is on hold or cut off.

        Raises:
            RuntimeError: It was cut off before its first reset.
        """
        assert self.row is not None
        if self.phase is Phase.CUT and self.row[0] is None:
            raise RuntimeError("the environment was replaced: reset it first")
        return self.row


def name_of(mode: AutoresetMode) -> str:
    """Return agym's name of a mode."""
    return mode.name.lower()


def parse_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """Parse an ``autoreset`` option: agym's name, or Gymnasium's enumeration or its value.

    Raises:
        UsageError: The mode is unknown.
    """
    if isinstance(mode, AutoresetMode):
        return mode
    for name, known in MODES.items():
        if isinstance(mode, str) and mode in (name, known.value):
            return known
    raise UsageError(f"autoreset={mode!r} is unknown: use one of {', '.join(MODES)}")
