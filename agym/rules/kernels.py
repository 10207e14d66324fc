"""The loops over a batch of games, in plain Python, which the engines run or compile.

::

    begin_some   the games of a mask --> new episodes
    play_some    states, actions     --> states, rewards, flags (in the games' headers)
    show_some    states, headers     --> observations, rewards, flags, infos (in result arrays)

A step is ``play_some``, which runs the rules on the games' memory, and then ``show_some``, which
writes the results. Each game is a record of its rule book's ``state``, and a header (``GAME``).

The functions ``reset``, ``step``, ``observe``, ``truncated`` and ``info`` are stand-ins:
``binding.py`` replaces them by the functions of a rule book. Same-step autoreset writes the results
of a finished episode, then starts the next one, so it happens in ``show_some``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agym.rules.rng import Rng

# key, draws:             the key of the game's random stream, and how many numbers were drawn
# reward ... truncated:   results of the last step
# age, over:              steps of this episode, and whether it has ended
GAME = np.dtype(
    [
        ("key", np.int64), ("draws", np.int64), ("reward", np.float64), ("age", np.int64),
        ("terminated", np.bool_), ("truncated", np.bool_), ("over", np.bool_),
    ],
    align=True,
)  # fmt: skip

# Autoreset modes, named as Gymnasium's: what follows an episode's end.
NEXT_STEP, SAME_STEP, DISABLED = 0, 1, 2


# ---------------------------------------------------------------- a rule book's functions


def reset(state: Any, rng: Any) -> None:
    """Start an episode; all fields except the parameters are zero."""


def step(state: Any, action: Any, rng: Any) -> tuple[float, bool]:
    """Play a step; return the reward, and whether the episode has ended."""
    raise NotImplementedError


def observe(state: Any, out: Any) -> None:
    """Write all of an observation."""


def truncated(state: Any) -> bool:
    """Return whether the episode is truncated."""
    return False


def info(state: Any, out: Any) -> None:
    """Write the fields of an info."""


# ---------------------------------------------------------------- one game


def begin(states: Any, blanks: Any, games: Any, i: int) -> None:
    """Start an episode of a game; ``blanks`` has one state for all games, or one per game."""
    states[i] = blanks[i if len(blanks) > 1 else 0]
    game = games[i]
    game.age = 0
    game.over = False
    reset(states[i], Rng(game))


def play(
    states: Any, blanks: Any, games: Any, i: int, action: Any, limit: int, mode: int
) -> None:  # fmt: skip
    """Play a step of a game; truncate its episode after ``limit`` steps, 0 for no limit."""
    game = games[i]
    if game.over:  # with SAME_STEP, only a restored game can be over
        if mode != DISABLED:
            begin(states, blanks, games, i)
            game.terminated = False
            game.truncated = False
        game.reward = 0.0
    else:
        state = states[i]
        reward, terminated = step(state, action, Rng(game))
        game.age += 1
        game.reward = reward
        game.terminated = bool(terminated)
        game.truncated = game.age == limit or bool(truncated(state))
        game.over = game.terminated or game.truncated


# ---------------------------------------------------------------- a range of games


def begin_some(
    states: Any, blanks: Any, games: Any, mask: Any, first: int, stop: int
) -> None:  # fmt: skip
    """Start episodes of the masked games from ``first`` to ``stop``."""
    for i in range(first, stop):
        if mask[i]:
            begin(states, blanks, games, i)


def play_some(
    states: Any, blanks: Any, games: Any, actions: Any, limit: int, mode: int, first: int,
    stop: int,
) -> None:  # fmt: skip
    """Play a step of the games from ``first`` to ``stop``."""
    for i in range(first, stop):
        play(states, blanks, games, i, actions[i], limit, mode)


def show_some(
    states: Any, blanks: Any, games: Any, observations: Any, rewards: Any, terminated: Any,
    truncated: Any, infos: Any, finals: Any, final_infos: Any, mode: int, first: int, stop: int,
) -> None:  # fmt: skip
    """Write the results of the games from ``first`` to ``stop``."""
    for i in range(first, stop):
        show(
            states, blanks, games, i, observations, rewards, terminated, truncated, infos, finals,
            final_infos, mode,
        )  # fmt: skip


def show(
    states: Any, blanks: Any, games: Any, i: int, observations: Any, rewards: Any,
    terminated: Any, truncated: Any, infos: Any, finals: Any, final_infos: Any, mode: int,
) -> None:  # fmt: skip
    """Write the results of a game; with same-step autoreset, start the next episode."""
    game, state = games[i], states[i]
    rewards[i] = game.reward
    terminated[i] = game.terminated
    truncated[i] = game.truncated
    if mode == SAME_STEP and game.over:
        observe(state, finals[i])
        info(state, final_infos[i])
        begin(states, blanks, games, i)
    observe(state, observations[i])
    info(state, infos[i])
