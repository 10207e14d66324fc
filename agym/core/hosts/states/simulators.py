"""Snapshots of simulators: MuJoCo, and the Arcade Learning Environment.

Of MuJoCo, the integration state is copied, and derived values that lag behind it.

Of ALE, its own state is copied, and the action that it may repeat. With
``repeat_action_probability``, each frame of ALE may repeat the action of the previous frame
instead of the given action. ``cloneState(include_rng=True)`` contains the random numbers that
decide this, but not that action (``StellaEnvironment::act`` and ``ALEState::save`` in
https://github.com/Farama-Foundation/Arcade-Learning-Environment). The action matters only if the
next frame repeats it, which the random numbers show. In that case it is determined by trial: any
action that has the same effect in all frames until a given action is accepted will do.

A state of ALE does not include the screen. After a snapshot or a restore, the screen shows a later
frame until the next step.
"""

from __future__ import annotations

import ctypes
import re
import sys
from typing import Any, NamedTuple

import numpy as np

# The bytes after the random numbers in a state: the limits of the paddles.
_TAIL = 8
_WORDS = 624
# Longer repeats are refused: such a game would hardly respond to actions.
_MAX_FRAMES = 64


class AleState(NamedTuple):
    """The state of an emulator.

    Attributes:
        state: The state as ALE clones it.
        accepting: The same state with other random numbers, with which the next frame accepts the
            given action; ``None`` if it does so anyway.
        repeated: Otherwise, the action that the next frame repeats.
    """

    state: Any
    accepting: Any = None
    repeated: Any = None


def take_ale(ale: Any) -> AleState:
    """Copy an emulator with its random numbers, and the action that its next frame repeats.

    Raises:
        ValueError: This version of ALE stores its random numbers differently, or no action has the
            effect of the next frame.
    """
    state = ale.cloneState(include_rng=True)
    probability = ale.getFloat("repeat_action_probability")
    if probability == 0:
        return AleState(state)
    if ale.getInt("frame_skip") != 1:
        raise ValueError("ALE itself skips frames while it repeats actions")
    frames = _count_repeats(state, probability)
    return _find_repeated(ale, state, frames) if frames else AleState(state)


def put_ale(ale: Any, taken: AleState) -> None:
    """Set the state of an emulator."""
    if taken.accepting is not None:
        ale.restoreState(taken.accepting)
        ale.act(taken.repeated, 1.0)
    ale.restoreState(taken.state)


def draw_ale(ale: Any, taken: AleState) -> None:
    """Draw approximately what a state shows: its next frame, because states have no screen."""
    if taken.accepting is None:  # otherwise it was drawn, and the next frame accepts its action
        ale.act(ale.getMinimalActionSet()[0], 1.0)
        ale.restoreState(taken.state)


def _find_repeated(ale: Any, state: Any, frames: int) -> AleState:
    """Find an action with the same effect in the next frames as the action that they repeat."""
    likely = sorted(ale.getMinimalActionSet(), key=lambda action: "FIRE" in action.name)
    actions = dict.fromkeys([*likely, *ale.getLegalActionSet()])
    without_rng = ale.cloneState()
    try:
        for _ in range(frames):
            ale.act(likely[0], 1.0)  # this action is not accepted
        memory, expected = ale.getRAM().tobytes(), ale.cloneState()
        # The random numbers stay at values with which a frame accepts its action.
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
    raise ValueError("no action has the effect of the repeated action")


def _count_repeats(state: Any, probability: float) -> int:
    """Return how many frames will repeat the last action, before a frame accepts its action.

    Each frame draws two random numbers, the second for a second player. A state contains them as
    the text of C++'s ``mt19937``: 624 words, and the position of the next word.

    Raises:
        ValueError: The text is not at the expected position, or there are too many frames.
    """
    text = state.__getstate__()[:-_TAIL]
    digits = text[-4:].rpartition(b" ")[2]
    if not digits.isdigit() or int(digits) > _WORDS:
        raise ValueError("this version of ALE stores its random numbers differently")
    position = int(digits)
    coming = text.rsplit(b" ", _WORDS + 1 - position)[1:-1]
    for k, word in enumerate(coming[::2]):
        if _temper(int(word)) >= probability:
            return k
    # NumPy computes the words after the last one. The length of the text precedes the first word.
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
    """Return the number between 0 and 1 that a word of ``mt19937`` represents.

    NumPy can do this, too, but needs 100 µs to set the words, usually to read only one.
    """
    word ^= word >> 11
    word ^= word << 7 & 0x9D2C5680
    word ^= word << 15 & 0xEFC60000
    return (word ^ word >> 18) / 2**32


def take_mujoco(data: Any) -> tuple[Any, bytes]:
    """Copy the state that determines the next step, and derived values that rewards may read."""
    mujoco = sys.modules["mujoco"]
    integration = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(data.model, integration))
    mujoco.mj_getState(data.model, data, state, integration)
    return state, ctypes.string_at(_block_of(data), data.nbuffer)


def put_mujoco(data: Any, state: tuple[Any, bytes]) -> None:
    """Set the state of a simulation.

    Raises:
        ValueError: The state is of another model.
    """
    mujoco = sys.modules["mujoco"]
    vector, arrays = state
    block = _block_of(data)
    if len(arrays) != data.nbuffer:
        raise ValueError(f"a state of {len(arrays)} bytes, but MuJoCo needs {data.nbuffer}")
    mujoco.mj_setState(data.model, data, vector, mujoco.mjtState.mjSTATE_INTEGRATION)
    ctypes.memmove(block, arrays, len(arrays))


def _block_of(data: Any) -> int:
    """Return the address of the memory with all arrays of fixed size of an ``MjData``.

    ``mj_makeData`` allocates them in one block of ``nbuffer`` bytes, and ``qpos`` is the first
    (https://github.com/google-deepmind/mujoco/blob/main/src/engine/engine_io.c). The block includes
    the world positions, forces and velocities of bodies. They lag behind ``qpos`` by part of a
    step, so that ``mj_forward`` does not restore them, and rewards of Ant and Humanoid read them.

    Raises:
        ValueError: A plugin stores state elsewhere, or this MuJoCo has another layout.
    """
    begin, size = ctypes.addressof(ctypes.c_char.from_buffer(data.qpos)), data.nbuffer
    if data.nplugin:
        raise ValueError("a plugin of MuJoCo stores state outside the simulation's data")
    if size not in _checked:
        for array in (data.qvel, data.xpos, data.cvel, data.qfrc_actuator):
            if array.size and not begin <= array.ctypes.data <= begin + size - array.nbytes:
                raise ValueError("the arrays of this MuJoCo's MjData are not one block")
        _checked.add(size)
    return begin


# Sizes of blocks whose layout was checked; blocks of one model have the same size.
_checked: set[int] = set()
