"""What happens at an episode's end: Gymnasium's three modes as one pure function.

The rule is Gymnasium's (https://farama.org/Vector-Autoreset-Mode), with one addition:
under ``disabled`` a finished environment *holds still* instead of being undefined, so that a
loop ``while not all(finished)`` ends by itself. A hold repeats the last observation with
reward 0, the flags kept and an empty info.
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
    HOLD = "every next step holds still until an explicit reset"


def at_end(mode: AutoresetMode) -> AtEnd:
    """Say what an environment does once its step came back terminated or truncated."""
    return {
        AutoresetMode.SAME_STEP: AtEnd.RESET_NOW,
        AutoresetMode.NEXT_STEP: AtEnd.RESET_NEXT,
        AutoresetMode.DISABLED: AtEnd.HOLD,
    }[mode]


def name_of(mode: AutoresetMode) -> str:
    """Agym's name of a mode."""
    return next(name for name, known in MODES.items() if known is mode)


def parse_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """Read an ``autoreset`` option: a name of agym's, or Gymnasium's enumeration or its value.

    Raises:
        UsageError: It is neither.
    """
    if isinstance(mode, AutoresetMode):
        return mode
    for name, known in MODES.items():
        if isinstance(mode, str) and mode in (name, known.value):
            return known
    raise UsageError(f"autoreset={mode!r} is unknown: take one of {', '.join(MODES)}")
