"""TextArena's games in agym, with any number of players, and agym's environments in TextArena.

Example:
    >>> import agym
    >>> game = agym.adapters.textarena.factory("GuessTheNumber-v0", max_number=4)
    >>> with agym.make(game, 2) as envs:
    ...     observations, infos = envs.reset(seed=0)
    ...     len(envs.step(["[3]", "three"]).observations)
    2
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import gymnasium

from agym.agents.adapters.common import (
    OwnRandom,
    Seat,
    as_text,
    check_env_options,
    check_function,
    check_new_id,
    find_spec,
)
from agym.api.options.environments import EnvLike
from agym.api.run import run_now
from agym.core._system.extras import require
from agym.core.hosts.async_env import AnySpace
from agym.core.protocol.arguments import check_count
from agym.core.protocol.typing import Options, Result, Start
from agym.errors import UsageError
from agym.rollouts.calling import is_coroutine_function

textarena: Any = require("textarena", "textarena")
registration: Any = require("textarena.envs.registration", "textarena")

Opponent = Callable[[int, Any], str | Awaitable[str]]


def factory(
    env_id: str,
    *,
    players: int | None = None,
    seat: int = 0,
    opponent: Opponent | None = None,
    own_random: bool = True,
    **env_kwargs: Any,
) -> Callable[[], Any]:
    """Return a factory of one player's seat in a TextArena game, for :func:`agym.make`.

    Example:
        >>> import agym
        >>> def first_free(player, observation):
        ...     return observation.rpartition("Available Moves: ")[2].partition(",")[0]
        >>> async def main():
        ...     game = agym.adapters.textarena.factory("TicTacToe-v0", opponent=first_free)
        ...     async with agym.make_async(game, 64) as envs:
        ...         await envs.reset(seed=0)
        ...         return await envs.step(["[4]"] * 64)
        >>> "[Player 1]" in agym.run(main()).observations[63]
        True

    A step is a move of this player, followed by the moves of the others until it is this player's
    turn again. The reward is TextArena's, at the end of a game; then ``info["rewards"]`` has the
    rewards of all players, and ``info["game"]`` is TextArena's info about this player, such as the
    reason. TextArena does not distinguish a limit of turns from other ends: all are ``terminated``.

    Args:
        env_id: An id in TextArena's registry. Its wrappers determine the observations: texts, or
            lists of messages for ids with ``"-raw"``.
        players: Number of players, 1 by default, or 2 with an ``opponent``.
        seat: The player whose actions are passed to ``step``.
        opponent: Plays all other seats: ``opponent(player, observation)`` returns an action. With
            a coroutine function, such as one that calls an :func:`agym.batched` policy, the games
            are coroutine environments, and wait at the same time.
        own_random: The games draw from the random generators of the whole process. By default, each
            game has separate states of them, so that it depends only on its seed.
        **env_kwargs: For the game, as in ``textarena.make``.

    Raises:
        UsageError: There is no such id, or no such seat.
    """
    spec = find_spec(env_id, registration.ENV_REGISTRY, "TextArena")
    check_function("opponent", opponent, "takes (player, observation) and returns an action")
    if players is None:
        players = 1 if opponent is None else 2
    players, seat = check_count("players", players), check_count("seat", seat, least=0)
    if not 0 <= seat < players:
        raise UsageError(f"seat={seat} must be one of the {players} players, counted from 0")
    if players > 1 and opponent is None:
        raise UsageError(f"players={players} needs an opponent, which plays the other seats")
    game = partial(CoroutineGame, spec, players, seat, opponent, own_random, env_kwargs)
    return game if is_coroutine_function(opponent) else partial(Game, game)


class CoroutineGame:
    """A seat in a game with a coroutine as the opponent; made by :func:`factory`."""

    def __init__(
        self,
        spec: Any,
        players: int,
        seat: int,
        opponent: Opponent | None,
        own_random: bool,
        env_kwargs: Mapping[str, Any],
    ) -> None:
        self._players = players
        self._seat = seat
        self._opponent: Any = opponent
        self._random = OwnRandom() if own_random else nullcontext()
        # A worker process may not have the ids that the caller's script registered.
        registration.ENV_REGISTRY.setdefault(spec.id, spec)
        with self._random:
            self._env = textarena.make(spec.id, **env_kwargs)
        self._name = spec.id

    async def reset(self, *, seed: int | None = None, options: Options | None = None) -> Start:
        """Start a game, and wait for the moves of players before this one."""
        with self._random:
            self._env.reset(num_players=self._players, seed=seed)
        observation, over = await self._others()
        if over:
            raise RuntimeError(f"{self._name} ended before player {self._seat} had a turn")
        return observation, {}

    async def step(self, action: str) -> Result:
        """Move, and wait for the other players' moves."""
        with self._random:
            over, info = self._env.step(action=action)
        observation, over = (self._last(), True) if over else await self._others()
        info, reward = dict(info), 0.0
        if over:
            rewards, game = self._env.close()
            reward = float(rewards[self._seat])
            info |= {
                "rewards": [float(rewards[player]) for player in sorted(rewards)],
                "game": game[self._seat],
            }
        return observation, reward, bool(over), False, info

    async def close(self) -> None:
        """Do nothing: a game has nothing to close."""

    async def _others(self) -> tuple[Any, bool]:
        """Play until it is this seat's turn; return its observation, and whether the game ended."""
        over = False
        while not over:
            with self._random:
                player, observation = self._env.get_observation()
            if player == self._seat:
                return observation, False
            action = self._opponent(player, observation)
            if inspect.isawaitable(action):
                action = await action
            with self._random:
                over, _ = self._env.step(action=action)
        return self._last(), True

    def _last(self) -> Any:
        """Return this player's observation of a game that is over."""
        with self._random:
            self._env.state.current_player_id = self._seat  # harmless: there are no more moves
            return self._env.get_observation()[1]


class Game(gymnasium.Env[Any, str]):
    """A seat in a game whose opponent is a plain function; made by :func:`factory`."""

    def __init__(self, make: Callable[[], CoroutineGame]) -> None:
        self.observation_space = AnySpace()
        self.action_space = AnySpace()
        self._game = make()

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> Start:
        super().reset(seed=seed)
        return run_now(self._game.reset(seed=seed))

    def step(self, action: str) -> Result:
        return run_now(self._game.step(action))


class Env(textarena.Env):
    """An agym environment as a TextArena game of one player.

    Example:
        >>> import agym
        >>> env = agym.adapters.textarena.Env("CartPole-v1", parse=int)
        >>> env.reset(num_players=1, seed=0)
        >>> player, messages = env.get_observation()
        >>> done, info = env.step("1")
        >>> player, done
        (0, False)
        >>> env.quit()

    As in TextArena, ``close()`` returns the reward of a game, which is the sum of the rewards of
    its steps; the reason is ``"terminated"`` or ``"truncated"``.

    Args:
        env: As for :func:`agym.make`: an id, a class or a factory, also of a coroutine environment.
        parse: Turns a text into an action.
        **options: Options of :func:`agym.make_async`, and keyword arguments for the environment.
    """

    def __init__(
        self, env: EnvLike, parse: Callable[[str], Any] | None = None, **options: Any
    ) -> None:
        self._seat = Seat(env, options, parse)
        self._total = 0.0

    def reset(self, num_players: int = 1, seed: int | None = None) -> None:
        """Start a game."""
        if num_players != 1:
            raise UsageError(f"num_players={num_players}: an agym environment has one player")
        observation, _ = self._seat.reset(seed)
        self._total = 0.0
        self.state = textarena.SinglePlayerState(num_players=1)
        self.state.reset(
            game_state={},
            player_prompt_function=lambda player_id, game_state: as_text(observation),
        )

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        """Move; return whether the game is over, and the environment's info."""
        observation, reward, terminated, truncated, info = self._seat.step(action)
        self._total += reward
        kinds = textarena.ObservationType
        self.state.add_observation(from_id=0, message=action, observation_type=kinds.PLAYER_ACTION)
        self.state.add_observation(
            message=as_text(observation), observation_type=kinds.GAME_MESSAGE
        )
        if terminated or truncated:
            self.state.set_outcome(self._total, "terminated" if terminated else "truncated")
        self.state.step_info = info
        over: tuple[bool, dict[str, Any]] = self.state.step()
        return over

    def quit(self) -> None:
        """Close the environment; in TextArena, ``close()`` only ends a game."""
        self._seat.close()


def register(
    env_id: str, env: EnvLike, *, parse: Callable[[str], Any] | None = None, **options: Any
) -> None:
    """Register an agym environment with TextArena, for ``textarena.make``.

    Example:
        >>> import agym, textarena
        >>> agym.adapters.textarena.register("agym-CartPole-v1", "CartPole-v1", parse=int)
        >>> game = textarena.make("agym-CartPole-v1")
        >>> game.reset(num_players=1, seed=0)
        >>> "[GAME]" in game.get_observation()[1]
        True
        >>> game.quit()

    The arguments are those of :class:`Env`. TextArena's ``LLMObservationWrapper`` is added, so that
    a model sees the whole game.

    Raises:
        UsageError: The id is in use.
    """
    check_new_id("env_id", env_id, registration.ENV_REGISTRY, "TextArena")
    check_env_options(options, parse)
    wrappers = [require("textarena.wrappers", "textarena").LLMObservationWrapper]
    registration.register(env_id, partial(Env, env, parse), wrappers, **options)
