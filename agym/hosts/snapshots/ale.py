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

from typing import Any, NamedTuple

import numpy as np

# What follows the random numbers in a state: the limits of the paddles.
_TAIL = 8
_WORDS = 624
# Longer repeats are refused: such a game would hardly obey its actions.
_MOST_FRAMES = 64


class AleState(NamedTuple):
    """The state of an emulator.

    Attributes:
        state: As ALE clones it.
        repeated: The action that the next frame repeats, ``None`` if it takes the given one.
    """

    state: Any
    repeated: Any


def take_ale(ale: Any) -> AleState:
    """Copy an emulator with its random numbers, and the action that its next frame repeats.

    Raises:
        ValueError: This version of ALE lays out its random numbers in another way, or no action
            does what the next frame does.
    """
    state = ale.cloneState(include_rng=True)
    probability = ale.getFloat("repeat_action_probability")
    if probability == 0:
        return AleState(state, None)
    if ale.getInt("frame_skip") != 1:
        raise ValueError("ALE itself skips frames, and repeats actions")
    random = _RandomNumbers(state)
    frames = random.count_repeats(probability)
    if frames == 0:
        return AleState(state, None)
    return AleState(state, _find_repeated(ale, state, random.accepting(probability), frames))


def put_ale(ale: Any, taken: AleState) -> None:
    """Set the state of an emulator."""
    state, repeated = taken
    if repeated is not None:
        probability = ale.getFloat("repeat_action_probability")
        ale.restoreState(_RandomNumbers(state).accepting(probability))
        ale.act(repeated, 1.0)
    ale.restoreState(state)


def draw_ale(ale: Any, taken: AleState) -> None:
    """Draw about what a state shows: its next frame, since the screen is not in a state."""
    if taken.repeated is None:  # else it is drawn, and the next frame takes the given action
        ale.act(ale.getMinimalActionSet()[0], 1.0)
        ale.restoreState(taken.state)


def _find_repeated(ale: Any, state: Any, accepting: Any, frames: int) -> Any:
    """Return an action that does the same in the next frames as the one that they repeat."""
    likely = sorted(ale.getMinimalActionSet(), key=lambda action: "FIRE" in action.name)
    actions = dict.fromkeys([*likely, *ale.getLegalActionSet()])
    try:
        for _ in range(frames):
            ale.act(next(iter(actions)), 1.0)  # not taken
        memory, expected = ale.getRAM().tobytes(), ale.cloneState()
        for action in actions:
            ale.restoreState(accepting)
            for _ in range(frames):
                ale.act(action, 1.0)
            if ale.getRAM().tobytes() == memory and ale.cloneState().equals(expected):
                return action
    finally:
        ale.restoreState(state)
    raise ValueError("no action does what ALE repeats")


class _RandomNumbers:
    """The random numbers in a state: the text of C++'s ``mt19937``, 624 words and a position."""

    def __init__(self, state: Any) -> None:
        """Read the position in a state.

        Raises:
            ValueError: It is not where it is expected.
        """
        self._kind: Any = type(state)
        self._content = state.__getstate__()
        self._text = self._content[:-_TAIL]
        self._position = self._text[-4:].rpartition(b" ")[2]
        if not self._position.isdigit() or int(self._position) > _WORDS:
            raise ValueError("ALE keeps its random numbers in another way")

    def count_repeats(self, probability: float) -> int:
        """Return how many frames will repeat the last action, before one takes the given one.

        Each frame draws two numbers, the second for a second player.
        """
        position = int(self._position)
        coming = self._text.rsplit(b" ", _WORDS + 1 - position)[1:-1]
        for k in range(0, len(coming), 2):
            if _temper(coming[k]) >= probability:
                return k // 2
        bits = np.random.MT19937()  # which makes new words
        key = np.array([int(word) for word in self._words()], np.uint32)
        bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": position}}
        drawn = bits.random_raw(2 * _MOST_FRAMES)[::2] / 2**32
        (accepted,) = np.nonzero(drawn >= probability)
        if not len(accepted):
            raise ValueError("ALE repeats actions for too long")
        return int(accepted[0])

    def accepting(self, probability: float) -> Any:
        """Return a state that differs in its next frame: it takes the given action.

        Only the position among the words is another, of as many digits.
        """
        digits = len(self._position)
        positions = range(10 ** (digits - 1) if digits > 1 else 0, min(10**digits, _WORDS))
        words = self._words()
        for position in positions:
            if _temper(words[position]) >= probability:
                begin, end = self._text[:-digits], self._content[-_TAIL:]
                state: Any = self._kind.__new__(self._kind)
                state.__setstate__(begin + b"%d" % position + end)
                return state
        raise ValueError("ALE repeats actions for too long")

    def _words(self) -> list[bytes]:
        first, *words = self._text.rsplit(b" ", _WORDS)[:-1]
        size = sum(map(len, words)) + len(self._position) + _WORDS
        for digits in range(1, 11):  # before the text is its length, in four bytes
            if first[:-digits][-4:] == (size + digits).to_bytes(4, "little"):
                return [first[-digits:], *words]
        raise ValueError("ALE keeps its random numbers in another way")


def _temper(word: bytes) -> float:
    """Return the number between 0 and 1 that a word of ``mt19937`` gives."""
    bits = int(word)
    bits ^= bits >> 11
    bits ^= bits << 7 & 0x9D2C5680
    bits ^= bits << 15 & 0xEFC60000
    return (bits ^ bits >> 18) / 2**32
