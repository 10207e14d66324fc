"""One game of a rule book as a ``gymnasium.Env``."""

from __future__ import annotations

import copyreg
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from agym.core.protocol.typing import Options, Result, Start
from agym.rules.contract import RuleBook, find_rules
from agym.rules.records import Record, Table
from agym.rules.vector_env import RulesType, RulesVectorEnv

T = TypeVar("T")


class RulesEnv(gymnasium.Env[Any, Any], metaclass=RulesType):
    """One game of a rule book; each rule book has a subclass.

    Example:
        >>> import agym
        >>> env = agym.vectorize("agym.envs.games.pong:Pong", points=3)
        >>> observation, info = env.reset(seed=0)
        >>> env.step(2)[1:]
        (0.0, False, False, {})

    ``agym.vectorize`` runs the rules of one game in Python, so that a debugger can step into them.
    For an id, as in ``gymnasium.make("agym/Pong-v0")``, they are compiled if numba is installed.

    Attributes:
        rules: The class or module of the rules.
    """

    rules: ClassVar[Any]

    def __init__(
        self,
        engine: str | None = None,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        **parameters: Any,
    ) -> None:
        """Make a game; the arguments are those of :func:`agym.vectorize`."""
        self._envs = envs = vector_env_class(self.rules)(
            1, engine, AutoresetMode.DISABLED, max_episode_steps, True, render_mode, **parameters
        )
        self._infos = RuleBook.of(self.rules).info_dtype.names or ()
        self.render_mode = render_mode
        self.engine = envs.engine
        self.observation_space = envs.single_observation_space
        self.action_space = envs.single_action_space

    @property
    def state(self) -> Record:
        """The game's record, whose fields can be read and set."""
        record: Record = Table(self._envs.states)[0]
        return record

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> Start:
        """Start an episode.

        Args:
            seed: Determines all randomness from now on. With ``None``, the random stream
                continues; if there is none yet, it starts with a random seed.
            options: Ignored.

        Returns:
            An observation and an info.
        """
        super().reset(seed=seed)
        if seed is not None or not self._envs.was_reset:
            seed = int(self.np_random.integers(2**32)) if seed is None else seed
        observations, infos = self._envs.reset(seed=seed)
        return observations[0], self._info(infos)

    def step(self, action: Any) -> Result:
        """Play a step.

        Raises:
            UsageError: The action is not in the action space.
            ResetNeeded: The episode is over, or was not started.
        """
        observations, rewards, terminated, truncated, infos = self._envs.step(
            np.asarray(action)[None]
        )
        return (
            observations[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]),
            self._info(infos),
        )  # fmt: skip

    def _info(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Return the game's info, with Python's numbers."""
        firsts = {name: infos[name][0] for name in self._infos}
        return {
            name: value.copy() if isinstance(value, np.ndarray) else value.item()
            for name, value in firsts.items()
        }

    def get_state(self) -> tuple[Any, ...]:
        """Return a copy of the game's state, including its random stream."""
        return self._envs.get_state(0)

    def set_state(self, state: tuple[Any, ...]) -> None:
        """Continue from a state."""
        self._envs.set_state(0, state)

    def render(self) -> Any:
        """Render the game in its ``render_mode``; return ``None`` without one."""
        frames = self._envs.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        self._envs.close()

    def get_keys_to_action(self) -> dict[Any, Any]:
        """Return the rules' keys for :func:`gymnasium.utils.play.play`."""
        return dict(getattr(self.rules, "keys_to_action", {}))


@cache
def vector_env_class(rules: Any) -> type[RulesVectorEnv]:
    """Return the class of many games of a class or module of rules.

    Raises:
        UsageError: The rules are invalid.
    """
    return _subclass(RulesVectorEnv, rules)


@cache
def env_class(rules: Any) -> type[RulesEnv]:
    """Return the class of one game of a class or module of rules.

    Raises:
        UsageError: The rules are invalid.
    """
    return _subclass(RulesEnv, rules)


def _subclass(base: type[T], rules: Any) -> type[T]:
    book = RuleBook.of(rules)
    parts = {"rules": rules, "metadata": book.metadata, "__doc__": rules.__doc__}
    return type(book.name + base.__name__.removeprefix("Rules"), (base,), parts)


def _reduce_class(cls: Any) -> Any:
    """Pickle a class by its rules; a module of rules cannot be pickled, so by its name."""
    if "rules" not in vars(cls):
        return cls.__qualname__
    rules = cls.rules.__name__ if isinstance(cls.rules, ModuleType) else cls.rules
    return _class_of, (issubclass(cls, RulesEnv), rules)


def _class_of(single: bool, rules: Any) -> type[RulesEnv] | type[RulesVectorEnv]:
    return (env_class if single else vector_env_class)(find_rules(rules))


copyreg.pickle(RulesType, _reduce_class)
