"""Plays on a graphics card, or numba's simulator of one, and prints a line for each way."""

from __future__ import annotations

import sys
from typing import Any

from gymnasium.vector import AutoresetMode

from tests.envs.same_games import GAMES, actions_of, play_same, side_by_side

if __name__ == "__main__":
    for name in GAMES:
        keywords: dict[str, Any] = {"points": 1, "max_episode_steps": 30} if name == "Pong" else {}
        for mode in AutoresetMode:
            envs = side_by_side(name, ["cuda"], 3, mode, **keywords)
            points, ended = play_same(envs, 4, actions_of(name, 3, 80, 3), resets=30)
            assert points > 2, points
            assert ended > 3, ended
            sys.stdout.write(f"{name}:{mode.name}\n")
