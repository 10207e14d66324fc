"""Many games of a rule book as a ``gymnasium.vector.VectorEnv``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from agym.core._system.extras import how_to_get, installed
from agym.core.protocol.arguments import check_choice, check_count
from agym.core.protocol.typing import Array
from agym.errors import ClosedError, UsageError
from agym.rules import kernels
from agym.rules.arithmetic import EXTRA
from agym.rules.compiling import log
from agym.rules.contract import RuleBook, action_check
from agym.rules.cuda import CudaEngine
from agym.rules.engines import CompiledEngine, Engine, Outputs, ParallelEngine, PythonEngine
from agym.rules.kernels import GAME
from agym.rules.records import Table
from agym.rules.rng import key_of, mix

ENGINES: dict[str, Callable[..., Engine]] = {
    "python": PythonEngine,
    "compiled": CompiledEngine,
    "parallel": ParallelEngine,
    "cuda": CudaEngine,
}

# The attributes to pickle, besides the arguments and the states of the games.
KEPT = (
    "_keyed", "_was_reset", "was_reset", "_over", "_np_random", "_np_random_seed", "closed", "spec",
)  # fmt: skip


class RulesType(type):
    """The metaclass of the classes that are made for a rule book; ``env.py`` pickles these."""


class RulesVectorEnv(VectorEnv[Any, Any, Array], metaclass=RulesType):
    """Many games of a rule book that step together; each rule book has a subclass.

    Example:
        >>> import agym
        >>> envs = agym.vectorize("agym.envs.games.pong:Pong", 3, engine="python", points=3)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (3, 30, 40)
        >>> envs.step(envs.action_space.sample())[1].tolist()
        [0.0, 0.0, 0.0]

    Attributes:
        rules: The class or module of the rules.
        states: The games' records, an array of ``num_envs``, which may be read and changed between
            steps. With ``engine="cuda"``, it is on the device.
        was_reset: Whether all games were reset, and no rule has raised since.
        loops: The engine that plays the games.
    """

    rules: ClassVar[Any]
    # Plays the same games as single environments; see api/options/environments.py.
    same_games: ClassVar[bool] = True

    def __init__(
        self,
        num_envs: int = 1,
        engine: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        copy: bool = True,
        render_mode: str | None = None,
        **parameters: Any,
    ) -> None:
        """Make games; the arguments are those of :func:`agym.vectorize`."""
        self._arguments: tuple[Any, ...] = (
            num_envs, engine, autoreset_mode, max_episode_steps, copy, render_mode,
        )  # fmt: skip
        self._parameters = parameters
        self.num_envs = check_count("num_envs", num_envs)
        self._book = book = self._read()
        self._autoreset = autoreset = parse_autoreset(autoreset_mode)
        self.metadata = {
            **book.metadata,
            "autoreset_mode": self._autoreset,
            # For agym's vector backend: how to pass a mask and seeds to `reset`.
            "reset_mask": True,
            "reset_seeds": "list",
        }
        modes = book.metadata["render_modes"]
        if render_mode is not None and not modes:
            raise UsageError(f"render_mode={render_mode!r}: the rules {book.name} have no render")
        if render_mode is not None:
            check_choice("render_mode", render_mode, modes)
        self.render_mode = render_mode
        self.single_observation_space = book.observation_space
        self.single_action_space = book.action_space
        self.observation_space = batch_space(book.observation_space, num_envs)
        self.action_space = batch_space(book.action_space, num_envs)
        if max_episode_steps == -1:
            max_episode_steps = None
        if max_episode_steps is not None:
            check_count("max_episode_steps", max_episode_steps)
            if max_episode_steps >= 2**63:
                raise UsageError(
                    f"max_episode_steps={max_episode_steps} must be less than 2**63: use -1 for no"
                    " limit"
                )
        self.engine = engine or default_engine(book)
        self.loops = self._make_engine(max_episode_steps, getattr(kernels, autoreset.name))
        self._on_device = self.engine == "cuda"
        self._checked = action_check(book, num_envs)
        self.copy = copy
        self._kept = None if copy else self.loops.own_outputs()
        self._spare: Outputs | None = None
        # For each game: whether it was ever seeded, whether it may be stepped, and, with DISABLED,
        # whether it is over.
        self._keyed, self._was_reset = np.zeros(num_envs, bool), np.zeros(num_envs, bool)
        self.was_reset = False
        self._over: Array | None = None

    def _read(self) -> Any:
        """Return the rule book."""
        return RuleBook.of(self.rules)

    def _make_engine(self, limit: int | None, mode: int) -> Engine:
        check_choice("engine", self.engine, [*ENGINES])
        blanks = self._book.blanks(self.num_envs, self._parameters)
        return ENGINES[self.engine](self._book, self.num_envs, blanks, limit, mode)

    @property
    def states(self) -> Any:
        """The games' records; see the class."""
        return self.loops.states

    # ---------------------------------------------------------------- reset

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all games, or some of them.

        Args:
            seed: Game ``i`` gets ``seed + i``, or element ``i`` of a sequence, where ``None`` is no
                seed. A seed determines all randomness from then on; without a seed, the random
                stream continues.
            options: ``"reset_mask"``: the games to reset, ``bool[num_envs]``; by default all.

        Returns:
            The observations of all games, and infos.

        Raises:
            UsageError: The seeds or the mask are invalid.
        """
        if self.closed:
            raise self._closed_error()
        mask = self._mask(options)
        self._seed(mask, self._seeds(seed))
        self._run(self.loops.begin, mask)
        out = self._kept or self.loops.outputs()
        self._run(self.loops.show, out)
        self._was_reset |= mask
        self.was_reset = bool(self._was_reset.all())
        if self._over is not None:
            self._over &= ~mask
        return out.observations, self._infos(out.infos, mask)

    def _mask(self, options: dict[str, Any] | None) -> Array:
        if not options or "reset_mask" not in options:
            return np.ones(self.num_envs, bool)
        mask = np.array(options["reset_mask"])
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise UsageError(
                f"options['reset_mask'] must be {self.num_envs} booleans, at least one of them true"
            )
        return mask

    def _seeds(self, seed: Any) -> Sequence[int | None]:
        """Return a seed per game."""
        n = self.num_envs
        if seed is None:
            return [None] * n
        seeds = range(int(seed), int(seed) + n) if isinstance(seed, int | np.integer) else seed
        integers = isinstance(seeds, Sequence | np.ndarray) and all(
            s is None or isinstance(s, int | np.integer) for s in seeds
        )
        if not integers:
            raise UsageError(f"seed={seed!r} must be an integer, or {n} integers or None")
        if len(seeds) != n:
            raise UsageError(f"seed={seed!r} has {len(seeds)} seeds for {n} games")
        if any(s is not None and s < 0 for s in seeds):
            raise UsageError(f"seed={seed!r} must not be negative")
        return [None if s is None else int(s) for s in seeds]

    def _seed(self, mask: Array, seeds: Sequence[int | None]) -> None:
        """Seed the games of a mask that have a seed, or that never had one."""
        super().reset(seed=seeds[0])
        given = ((i, seeds[i]) for i in np.flatnonzero(mask).tolist())
        keys = {i: key_of(seed) for i, seed in given if seed is not None}
        fresh = [i for i in np.flatnonzero(mask & ~self._keyed).tolist() if i not in keys]
        if fresh:  # different keys that start at a random key
            start = int(self.np_random.integers(2**32))
            keys |= {i: mix((start + k) & 0xFFFFFFFF) for k, i in enumerate(fresh)}
        if keys:
            self.loops.seed(np.array([*keys]), np.array([*keys.values()], np.int64))
        self._keyed |= mask

    # ---------------------------------------------------------------- step

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Play a step of all games.

        Args:
            actions: A batch of actions; integers or floats of any size. With ``engine="cuda"``, it
                may also be an array on the device, which is not checked.

        Returns:
            Observations, rewards ``float64[num_envs]``, both flags ``bool[num_envs]``, and infos,
            with ``"final_obs"`` of games that were reset in the same step. With ``copy=False``, the
            next step overwrites the arrays.

        Raises:
            UsageError: The actions are not in the action space.
            ResetNeeded: A game was not reset, or is over without autoreset, or a rule has raised.
            ClosedError: The environment is closed.
        """
        if self._over is not None and self._over.any():
            message = "some games are over: reset them with options={'reset_mask': ...}"
            raise ResetNeeded(message if self.num_envs > 1 else "the episode is over: call reset")
        self.play(actions)
        out = self._kept or self.loops.outputs()
        info = self._show(out)
        return out.observations, out.rewards, out.terminated, out.truncated, info

    def play(self, actions: Any) -> None:
        """Play a step without writing its results; :meth:`show_into` is the other half.

        With DISABLED, a game that is over does not change.
        """
        if not self._on_device or not hasattr(actions, "__cuda_array_interface__"):
            actions = self._checked(actions)
        if not self.was_reset:
            raise self._closed_error() if self.closed else ResetNeeded("call reset before step")
        self._run(self.loops.play, actions)

    def _run(self, part: Callable[..., Any], *arguments: Any) -> Any:
        """Run rules. If they raise, only some games have been stepped, so all must be reset."""
        try:
            return part(*arguments)
        except BaseException:
            self._was_reset[:] = self.was_reset = False
            raise

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"{self._book.name}: the environment is closed: make a new one")

    def show_into(
        self,
        observations: Array,
        rewards: Array,
        terminated: Array,
        truncated: Array,
        finals: Array | None,
        vector_infos: bool,
    ) -> dict[str, Any]:
        """Write the results of a step into arrays of the caller; return the infos.

        Unless ``vector_infos``, columns of infos may be objects, where Gymnasium's format converts
        the values to the type of the first. With ``finals``, the last observations of episodes are
        written there, not into the infos.
        """
        spare = self._spare = self._spare or self.loops.outputs()
        present = spare.finals if spare.finals is not spare.observations else observations
        out = spare._replace(
            observations=observations, rewards=rewards, terminated=terminated,
            truncated=truncated, finals=present if finals is None else finals,
        )  # fmt: skip
        return self._show(out, final_obs=finals is None, vector_infos=vector_infos)

    def _show(
        self, out: Outputs, *, final_obs: bool = True, vector_infos: bool = True
    ) -> dict[str, Any]:
        over = self._run(self.loops.show, out)
        info = self._infos(out.infos, None, vector_infos)
        if self._autoreset is AutoresetMode.DISABLED:
            self._over = over
        elif over is not None and over.any():
            finals = self._infos(out.final_infos, over, vector_infos)
            info |= {"final_info": finals, "_final_info": over.copy()}
            if final_obs:
                info |= {"final_obs": self._final_obs(out, over), "_final_obs": over}
        return info

    def _infos(self, infos: Any, mask: Array | None, vector_infos: bool = True) -> dict[str, Any]:
        """Return infos in Gymnasium's format: an array per key, and a mask of the valid rows."""
        names = self._book.info_dtype.names
        if not names:
            return {}
        infos = infos if mask is None else _only(infos, mask)
        mask = np.ones(self.num_envs, bool) if mask is None else mask
        columns = {name: infos[name] for name in names}
        return {**columns, **{f"_{name}": mask.copy() for name in names}}

    def _final_obs(self, out: Outputs, over: Array) -> Array:
        """Return the last observations of games that were reset, in Gymnasium's format."""
        finals = np.full(self.num_envs, None, object)
        observations = np.asarray(out.finals)
        for i in np.flatnonzero(over).tolist():
            finals[i] = observations[i].copy()
        return finals

    # ---------------------------------------------------------------- snapshots

    def get_state(self, index: int) -> tuple[Any, ...]:
        """Return a copy of the state of one game, including its random stream."""
        over = self._over is not None and bool(self._over[index])
        return self.loops.get_state(index), bool(self._was_reset[index]), over

    def set_state(self, index: int, state: tuple[Any, ...]) -> None:
        """Continue one game from a state; the autoreset mode may differ from the state's."""
        game, was_reset, _ = state
        self.loops.set_state(index, game)
        self._keyed[index] = self._was_reset[index] = was_reset
        self.was_reset = bool(self._was_reset.all())
        if self._autoreset is AutoresetMode.DISABLED:  # the other modes reset a game that is over
            self._over = np.zeros(self.num_envs, bool) if self._over is None else self._over
            self._over[index] = np.frombuffer(game[1], GAME)["over"][0]

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = {name: vars(self)[name] for name in KEPT if name in vars(self)}
        arguments = type(self), self._arguments, self._parameters, self.loops.get_states()
        return _remade, arguments, attributes

    # ---------------------------------------------------------------- the rest

    def render(self) -> Any:
        """Render each game in ``render_mode``; return ``None`` without one."""
        if self.render_mode is None:
            return None
        return tuple(
            self._book.picture(state, self.render_mode) for state in Table(np.asarray(self.states))
        )

    def close_extras(self, **kwargs: Any) -> None:
        self._was_reset[:] = self.was_reset = False
        self.loops.close()


def _remade(
    cls: type[RulesVectorEnv], arguments: Any, parameters: Any, states: Any
) -> RulesVectorEnv:  # fmt: skip
    """Return the copy of a pickled environment."""
    envs = cls(*arguments, **parameters)
    envs.loops.set_states(states)
    return envs


def _only(infos: Any, mask: Array) -> Any:
    """Return infos with zeros where a mask is false."""
    if mask.all():
        return infos
    infos = np.array(infos)
    infos[~mask] = np.zeros((), infos.dtype)
    return infos


def parse_autoreset(mode: AutoresetMode | str) -> AutoresetMode:
    """Return an autoreset mode by its name, as in Gymnasium or agym.

    Raises:
        UsageError: There is no such mode.
    """
    names = {name: m for m in AutoresetMode for name in (m, m.value, m.name.lower())}
    if mode not in names:
        raise UsageError(
            f"autoreset_mode={mode!r} must be 'next_step', 'same_step' or 'disabled', or a"
            " gymnasium.vector.AutoresetMode"
        )
    return names[mode]


def default_engine(book: RuleBook) -> str:
    """Return the engine for many games: compiled code, if numba is installed."""
    if installed("numba"):
        return "compiled"
    _warn_once(book.name)
    return "python"


@cache
def _warn_once(name: str) -> None:
    log.warning(
        "%s runs in plain Python, which is about 100 times slower than compiled rules: %s",
        name, how_to_get("numba", EXTRA),
    )  # fmt: skip
