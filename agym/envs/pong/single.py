"""A single game as a ``gymnasium.Env``: ``agym/Pong-v0`` and ``agym/PongRally-v0``."""

from __future__ import annotations

from itertools import product
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agym.envs.pong.game import BEFORE, restart, take_turn
from agym.envs.pong.games import Setup, as_bytes, first_picture, key_of
from agym.envs.pong.rendering import METADATA, check_render_mode, picture
from agym.envs.pong.rules import BALL, DOWN, HEIGHT, STAY, UP, WIDTH
from agym.errors import UsageError
from agym.protocol.typing import Array

# A key as a letter, or as its number in pygame.
Key = str | int

# Keys by action: letters for the left hand, and arrows.
LETTERS: dict[int, tuple[Key, ...]] = {STAY: (), UP: ("w",), DOWN: ("s",)}
ARROWS: dict[int, tuple[Key, ...]] = {STAY: (), UP: (1073741906,), DOWN: (1073741905,)}


def observation_space() -> spaces.Box:
    """Return the space of grids: 0 is empty, 1 a paddle, 2 the ball."""
    return spaces.Box(0, BALL, (HEIGHT, WIDTH), np.uint8)


class OneGame(gymnasium.Env[Array, Any]):
    """Base of both environments: a record, a grid, and the rules in plain Python."""

    metadata: dict[str, Any] = METADATA

    def __init__(self, setup: Setup, render_mode: str | None) -> None:
        self.render_mode = check_render_mode(render_mode)
        self.observation_space = observation_space()
        self._setup = setup
        self._game = BEFORE
        self._grid = first_picture()
        self._cells = as_bytes(self._grid)
        self._keyed = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin a game.

        Args:
            seed: Determines all serves from now on, and when the opponent pays attention. Without
                a seed the random stream continues; the first one is random.
            options: None are known.

        Returns:
            A copy of the grid, ``uint8[HEIGHT, WIDTH]``, and an empty info.
        """
        super().reset(seed=seed)
        if seed is not None or not self._keyed:
            key = int(self.np_random.integers(2**32)) if seed is None else key_of(seed)
            self._game = (*self._game[:8], key, 0, *self._game[10:])
            self._keyed = True
        self._game = restart(self._game, self._cells, 0)
        return self._grid.copy(), {}

    def _step(self, left: int, right: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        setup = self._setup
        self._game, reward, terminated, _ = take_turn(
            self._game, left, right, setup.players, setup.points, setup.skill, setup.limit,
            setup.mode, self._cells, self._cells, 0,
        )  # fmt: skip
        return self._grid.copy(), float(reward), terminated, False, {}

    def render(self) -> Any:
        return picture(self._grid, self.render_mode)


class PongEnv(OneGame):
    """Pong against a scripted opponent.

    The agent has the right paddle. Action: 0 stays, 1 moves up, 2 moves down. Observation:
    ``uint8[30, 40]``, 0 empty, 1 paddle, 2 ball. Reward: 1 for a point, -1 for the opponent's. The
    first side with ``points`` points ends the game. The rules are in :mod:`agym.envs.pong.rules`.
    """

    def __init__(
        self, points: int = 21, skill: float = 0.5, render_mode: str | None = None
    ) -> None:
        """Make a game.

        Args:
            points: Points that win.
            skill: Probability that the opponent pays attention, 0 to 1.
            render_mode: ``"rgb_array"``, ``"ansi"`` or ``None``.
        """
        super().__init__(Setup.of(1, points, skill), render_mode)
        self.action_space = spaces.Discrete(3)

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Play a step.

        Raises:
            UsageError: The action is invalid.
        """
        if not self.action_space.contains(action):
            raise UsageError(f"action {action!r} must be 0 (stay), 1 (up) or 2 (down)")
        return self._step(STAY, int(action))

    def get_keys_to_action(self) -> dict[tuple[Key, ...], int]:
        """Return the keys for :func:`gymnasium.utils.play.play`: ``w`` and ``s``, or arrows."""
        return {keys[action]: action for keys in (LETTERS, ARROWS) for action in (UP, DOWN)}


class PongRallyEnv(OneGame):
    """One rally of Pong, in which both players are agents.

    Action: one for the left paddle and one for the right, each 0 (stay), 1 (up) or 2 (down).
    Observation: ``uint8[30, 40]``, 0 empty, 1 paddle, 2 ball. Reward: 1 for each step in which the
    ball stays in play; a miss ends the game. The rules are in :mod:`agym.envs.pong.rules`.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        """Make a game; ``render_mode`` is ``"rgb_array"``, ``"ansi"`` or ``None``."""
        super().__init__(Setup.of(2), render_mode)
        self.action_space = spaces.MultiDiscrete([3, 3])

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Play a step.

        Raises:
            UsageError: The action is invalid.
        """
        if np.shape(action) != (2,) or not all(choice in (STAY, UP, DOWN) for choice in action):
            raise UsageError(f"action {action!r} must be two of 0 (stay), 1 (up) and 2 (down)")
        return self._step(int(action[0]), int(action[1]))

    def get_keys_to_action(self) -> dict[tuple[Key, ...], Array]:
        """Return the keys for :func:`gymnasium.utils.play.play`.

        The left player has ``w`` and ``s``, the right one the arrows. ``play`` also needs the
        action of no key: ``play(env, noop=np.array([0, 0]))``.
        """
        return {
            LETTERS[left] + ARROWS[right]: np.array([left, right])
            for left, right in product((STAY, UP, DOWN), repeat=2)
            if left or right
        }
