"""Pong in plain Python, one game after the other: the reference for the other implementations."""

from __future__ import annotations

from agym.envs.pong.game import BEFORE, CELLS, Game, restart, take_turn
from agym.envs.pong.games import Games, Setup, as_bytes
from agym.protocol.typing import Array


class ScalarGames(Games):
    """Keeps the games as a list of records."""

    def __init__(self, count: int, setup: Setup) -> None:
        super().__init__(count, setup)
        self._games: list[Game] = [BEFORE] * count
        self._cells, self._finals = as_bytes(self.cells), as_bytes(self.finals)

    def begin(self, mask: Array, keys: Array, seeded: Array) -> None:
        for i in mask.nonzero()[0].tolist():
            game = self._games[i]
            if seeded[i]:
                game = (*game[:8], int(keys[i]), 0, *game[10:])
            self._games[i] = restart(game, self._cells, i * CELLS)

    def turn(self, actions: Array, rewards: Array, terminated: Array, truncated: Array) -> None:
        setup, games, cells, finals = self.setup, self._games, self._cells, self._finals
        for i, choice in enumerate(actions.tolist()):
            games[i], rewards[i], terminated[i], truncated[i] = take_turn(
                games[i], choice[0], choice[-1], setup.players, setup.points, setup.skill,
                setup.limit, setup.mode, cells, finals, i * CELLS,
            )  # fmt: skip
