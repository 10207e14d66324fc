"""Autoreset: what happens at an episode's end, by Gymnasium's three modes.

The rules are Gymnasium's (https://farama.org/Vector-Autoreset-Mode), with one addition: under
``disabled``, the step of a finished environment is not undefined. The environment is *held* until
the next reset, so that a loop ``while not all(finished)`` ends. A held step repeats the last
observation and flags with reward 0 and an empty info.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from gymnasium.vector import AutoresetMode

from agym.errors import UsageError

MODES: Final = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}


class AtEnd(Enum):
    """What follows the step that finished an episode."""

    RESET_NOW = "reset in the same step, the final observation kept apart"
    RESET_NEXT = "the next step resets, and ignores its action"
    HOLD = "every next step is held until an explicit reset"


def at_end(mode: AutoresetMode) -> AtEnd:
    """Return what follows an episode's end in a mode."""
    return {
        AutoresetMode.SAME_STEP: AtEnd.RESET_NOW,
        AutoresetMode.NEXT_STEP: AtEnd.RESET_NEXT,
        AutoresetMode.DISABLED: AtEnd.HOLD,
    }[mode]


def name_of(mode: AutoresetMode) -> str:
    """Return agym's name of a mode."""
    return next(name for name, known in MODES.items() if known is mode)


def parse_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """Parse an ``autoreset`` option: agym's name, or Gymnasium's enumeration or its value.

    Raises:
        UsageError: It is neither.
    """
    if isinstance(mode, AutoresetMode):
        return mode
    for name, known in MODES.items():
        if isinstance(mode, str) and mode in (name, known.value):
            return known
    raise UsageError(f"autoreset={mode!r} is unknown: take one of {', '.join(MODES)}")
