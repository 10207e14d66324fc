"""Snapshots of the Arcade Learning Environment: its own, and the action that it may repeat.

With ``repeat_action_probability``, each frame of ALE may repeat the action of the frame before,
instead of taking the given one. ``cloneState(include_rng=True)`` has the random numbers that decide
so, but not that action (``StellaEnvironment::act`` and ``ALEState::save`` in
https://github.com/Farama-Foundation/Arcade-Learning-Environment). It matters only if the next frame
repeats it, which the random numbers tell. Then it is found by trying: an action that does the same
in all frames until a given one is taken is as good as the one that was taken.

A screen is not in a state either. After a snapshot or a restore it shows a frame later, until the
next step.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

# What follows the random numbers in a state: the limits of the paddles.
_TAIL = 8
_WORDS = 624
# Longer repeats are refused: such a game would hardly obey its actions.
_MAX_FRAMES = 64


class AleState(NamedTuple):
    """The state of an emulator.

    Attributes:
        state: As ALE clones it.
        accepting: The same with other random numbers, by which the next frame takes the given
            action; ``None`` if it does so anyway.
        repeated: Else the action that the next frame repeats.
    """

    state: Any
    accepting: Any = None
    repeated: Any = None


def take_ale(ale: Any) -> AleState:
    """Copy an emulator with its random numbers, and the action that its next frame repeats.

    Raises:
        ValueError: This version of ALE lays out its random numbers in another way, or no action
            does what the next frame does.
    """
    state = ale.cloneState(include_rng=True)
    probability = ale.getFloat("repeat_action_probability")
    if probability == 0:
        return AleState(state)
    if ale.getInt("frame_skip") != 1:
        raise ValueError("ALE itself skips frames, and repeats actions")
    frames = _count_repeats(state, probability)
    return _find_repeated(ale, state, frames) if frames else AleState(state)


def put_ale(ale: Any, taken: AleState) -> None:
    """Set the state of an emulator."""
    if taken.accepting is not None:
        ale.restoreState(taken.accepting)
        ale.act(taken.repeated, 1.0)
    ale.restoreState(taken.state)


def draw_ale(ale: Any, taken: AleState) -> None:
    """Draw about what a state shows: its next frame, since the screen is not in a state."""
    if taken.accepting is None:  # else it is drawn, and the next frame takes the given action
        ale.act(ale.getMinimalActionSet()[0], 1.0)
        ale.restoreState(taken.state)


def _find_repeated(ale: Any, state: Any, frames: int) -> AleState:
    """Find an action that does the same in the next frames as the one that they repeat."""
    likely = sorted(ale.getMinimalActionSet(), key=lambda action: "FIRE" in action.name)
    actions = dict.fromkeys([*likely, *ale.getLegalActionSet()])
    without_rng = ale.cloneState()
    try:
        for _ in range(frames):
            ale.act(likely[0], 1.0)  # not taken
        memory, expected = ale.getRAM().tobytes(), ale.cloneState()
        # The random numbers stay where they are: at those by which a frame takes its action.
        ale.restoreState(without_rng)
        accepting = ale.cloneState(include_rng=True)
        for action in actions:
            for _ in range(frames):
                ale.act(action, 1.0)
            if ale.getRAM().tobytes() == memory and ale.cloneState().equals(expected):
                return AleState(state, accepting, action)
            ale.restoreState(accepting)
    finally:
        ale.restoreState(state)
    raise ValueError("no action does what ALE repeats")


def _count_repeats(state: Any, probability: float) -> int:
    """Return how many frames will repeat the last action, before one takes the given one.

    Each frame draws two random numbers, the second for a second player. In a state they are the
    text of C++'s ``mt19937``: 624 words, and the position of the next one.

    Raises:
        ValueError: The text is not where it is expected, or the frames are too many.
    """
    text = state.__getstate__()[:-_TAIL]
    digits = text[-4:].rpartition(b" ")[2]
    if not digits.isdigit() or int(digits) > _WORDS:
        raise ValueError("ALE keeps its random numbers in another way")
    position = int(digits)
    coming = text.rsplit(b" ", _WORDS + 1 - position)[1:-1]
    for k, word in enumerate(coming[::2]):
        if _temper(int(word)) >= probability:
            return k
    # NumPy makes the words after the last one. Before the first is the length of the text.
    first, *words = text.rsplit(b" ", _WORDS)[:-1]
    key = np.array([int(word) for word in (*re.findall(rb"\d+$", first), *words)], np.uint32)
    bits = np.random.MT19937()
    bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": position}}
    drawn = bits.random_raw(2 * _MAX_FRAMES)[::2] / 2**32
    (accepted,) = np.nonzero(drawn >= probability)
    if not len(accepted):
        raise ValueError("ALE repeats actions for too long")
    return int(accepted[0])


def _temper(word: int) -> float:
    """Return the number between 0 and 1 that a word of ``mt19937`` gives.

    NumPy does it too, but takes 100 µs to set the words, most often to read one.
    """
    word ^= word >> 11
    word ^= word << 7 & 0x9D2C5680
    word ^= word << 15 & 0xEFC60000
    return (word ^ word >> 18) / 2**32
