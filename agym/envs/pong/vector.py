"""A batch of games as a ``gymnasium.vector.VectorEnv``, with a choice of five engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from agym._system.extras import installed
from agym.envs.pong.compiled import CompiledGames, ParallelGames
from agym.envs.pong.cuda import CudaGames
from agym.envs.pong.games import Games, Setup, key_of
from agym.envs.pong.rendering import METADATA, check_render_mode, picture
from agym.envs.pong.rules import DOWN
from agym.envs.pong.scalar import ScalarGames
from agym.envs.pong.single import observation_space
from agym.envs.pong.vectorised import VectorisedGames
from agym.errors import UsageError
from agym.protocol.arguments import check_choice, check_count
from agym.protocol.typing import Array

ENGINES: dict[str, Callable[[int, Setup], Games]] = {
    "scalar": ScalarGames,
    "numpy": VectorisedGames,
    "compiled": CompiledGames,
    "parallel": ParallelGames,
    "cuda": CudaGames,
}


class ManyGames(VectorEnv[Array, Array, Array]):
    """Base of both vector environments."""

    def __init__(
        self,
        num_envs: int,
        setup: Setup,
        action_space: Space[Any],
        engine: str | None,
        autoreset_mode: AutoresetMode,
        copy: bool,
        render_mode: str | None,
    ) -> None:
        engine = engine or ("compiled" if installed("numba") else "numpy")
        check_choice("engine", engine, [*ENGINES])
        self.num_envs = check_count("num_envs", num_envs)
        self.metadata = {
            **METADATA,
            "autoreset_mode": autoreset_mode,
            # How agym's native backend may pass a mask and seeds to `reset`.
            "reset_mask": True,
            "reset_seeds": "list",
        }
        self.render_mode = check_render_mode(render_mode)
        self.single_observation_space = observation_space()
        self.single_action_space = action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.copy = copy
        self._mode = autoreset_mode
        self._players = setup.players
        self._games = ENGINES[engine](num_envs, setup)
        # Which games have ever begun, and whether all have.
        self._keyed, self._begun = np.zeros(num_envs, bool), False
        self._over = np.zeros(num_envs, bool)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Begin games.

        Args:
            seed: Game i gets ``seed + i``, or element i of a sequence, where ``None`` is no seed.
                A seed determines all randomness from then on; without one the stream continues.
            options: ``"reset_mask"``: which games to begin, ``bool[num_envs]``; by default all.

        Returns:
            The grids of all games, ``uint8[num_envs, HEIGHT, WIDTH]``, and empty infos.

        Raises:
            UsageError: The seeds or the mask do not fit.
        """
        n = self.num_envs
        mask, seeds = self._mask(options), self._seeds(seed)
        super().reset(seed=seed if isinstance(seed, int) else None)
        seeded = mask & np.array([one is not None for one in seeds])
        keys = np.zeros(n, np.int64)
        for i in seeded.nonzero()[0].tolist():
            keys[i] = key_of(int(seeds[i] or 0))
        unkeyed = mask & ~self._keyed & ~seeded
        if unkeyed.any():
            keys[unkeyed] = self.np_random.integers(2**32, size=int(unkeyed.sum()))
        self._games.begin(mask, keys, seeded | unkeyed)
        self._keyed |= mask
        self._begun = bool(self._keyed.all())
        self._over &= ~mask
        return self._observe(), {}

    def _mask(self, options: dict[str, Any] | None) -> Array:
        if not options or "reset_mask" not in options:
            return np.ones(self.num_envs, bool)
        mask = np.asarray(options["reset_mask"])
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise UsageError(
                f"options['reset_mask'] must be {self.num_envs} booleans, at least one of them true"
            )
        return mask

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        n = self.num_envs
        seeds = range(seed, seed + n) if isinstance(seed, int | np.integer) else seed or [None] * n
        if len(seeds) != n:
            raise UsageError(f"seed={seed!r} has {len(seeds)} seeds for {n} games")
        if any(one is not None and one < 0 for one in seeds):
            raise UsageError(f"seed={seed!r} must not be negative")
        return seeds

    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Play a step of all games.

        Args:
            actions: ``[num_envs]`` of 0 (stay), 1 (up), 2 (down), or ``[num_envs, 2]`` for the left
                and the right player; integers of any size.

        Returns:
            Grids ``uint8[num_envs, HEIGHT, WIDTH]``, which the next step overwrites if the
            environment was made with ``copy=False``; new arrays of rewards ``float64[num_envs]``
            and of both flags ``bool[num_envs]``; infos, with ``"final_obs"`` where games were
            replaced in the same step.

        Raises:
            UsageError: The actions do not fit.
            ResetNeeded: A game has not begun, or is over without autoreset.
        """
        n = self.num_envs
        choices = self._check(actions)
        if self._mode is AutoresetMode.DISABLED and self._over.any():
            raise ResetNeeded("some games are over: reset them with options={'reset_mask': ...}")
        rewards = np.empty(n)
        terminated, truncated = np.empty(n, bool), np.empty(n, bool)
        self._games.turn(choices, rewards, terminated, truncated)
        info: dict[str, Any] = {}
        if self._mode is not AutoresetMode.NEXT_STEP:
            over = terminated | truncated
            if self._mode is AutoresetMode.DISABLED:
                self._over = over
            elif over.any():
                info = self._finals(over)
        return self._observe(), rewards, terminated, truncated, info

    def _check(self, actions: Any) -> Array:
        """Return checked actions as ``int64[num_envs, players]``."""
        array = np.asarray(actions)
        if array.dtype != np.int64 and array.dtype.kind in "iu":
            array = array.astype(np.int64)
        if array.dtype != np.int64 or array.shape != self.action_space.shape:
            raise UsageError(
                f"actions of shape {array.shape} and dtype {array.dtype} must be integers of shape"
                f" {self.action_space.shape}"
            )
        # Viewed as unsigned, negative numbers are large.
        if array.view(np.uint64).max() > DOWN:
            raise UsageError("actions must be 0 (stay), 1 (up) or 2 (down)")
        if not self._begun:
            raise ResetNeeded("call reset before step")
        return np.ascontiguousarray(array).reshape(-1, self._players)

    def _observe(self) -> Array:
        cells = self._games.cells
        return cells.copy() if self.copy else cells

    def _finals(self, over: Array) -> dict[str, Any]:
        """Return the infos of games replaced in the same step, in Gymnasium's format."""
        finals = np.full(self.num_envs, None, object)
        for i in np.flatnonzero(over).tolist():
            finals[i] = self._games.finals[i].copy()
        return {
            "final_obs": finals, "_final_obs": over.copy(),
            "final_info": {}, "_final_info": over.copy(),
        }  # fmt: skip

    def fetch_cells(self, wanted: bool) -> None:
        """Set whether steps on a CUDA device copy the grids to the host; by default they do.

        Otherwise they stay in :attr:`device_cells`, and returned observations are stale.

        Raises:
            UsageError: The engine is not ``"cuda"``.
        """
        if not isinstance(self._games, CudaGames):
            raise UsageError(
                "fetch_cells needs engine='cuda': other engines keep cells on the host"
            )
        self._games.fetch = wanted

    @property
    def device_cells(self) -> Any:
        """Grids on a CUDA device, flat, ``uint8[num_envs * HEIGHT * WIDTH]``; else ``None``."""
        return self._games.device_cells if isinstance(self._games, CudaGames) else None

    def render(self) -> Any:
        """Render each game as ``render_mode`` says; ``None`` without one."""
        if self.render_mode is None:
            return None
        return tuple(picture(grid, self.render_mode) for grid in self._games.cells)

    def close_extras(self, **kwargs: Any) -> None:
        self._games.close()


class PongVectorEnv(ManyGames):
    """Games of :class:`~agym.envs.pong.single.PongEnv`."""

    def __init__(
        self,
        num_envs: int = 1,
        points: int = 21,
        skill: float = 0.5,
        engine: str | None = None,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        copy: bool = True,
        render_mode: str | None = None,
    ) -> None:
        """Make games.

        Args:
            num_envs: Number of games.
            points: Points that win.
            skill: Probability that the opponent pays attention, 0 to 1.
            engine: ``"scalar"`` (plain Python), ``"numpy"``, ``"compiled"`` (numba, one core),
                ``"parallel"`` (numba, all cores, from one thread at a time) or ``"cuda"``. All give
                the same results. Default: compiled where numba is installed, else numpy.
            autoreset_mode: What follows the end of a game.
            max_episode_steps: Steps after which a game is truncated.
            copy: Whether observations are copies; if not, the next step overwrites them.
            render_mode: ``"rgb_array"``, ``"ansi"`` or ``None``.
            render_mode: ``"rgb_array"``, ``"ansi"`` or ``None``.

        Raises:
            UsageError: An argument cannot work.
            MissingExtraError: numba is not installed.
        """
        mode = AutoresetMode(autoreset_mode)
        setup = Setup.of(1, points, skill, max_episode_steps, mode)
        super().__init__(num_envs, setup, spaces.Discrete(3), engine, mode, copy, render_mode)


class PongRallyVectorEnv(ManyGames):
    """Games of :class:`~agym.envs.pong.single.PongRallyEnv`."""

    def __init__(
        self,
        num_envs: int = 1,
        engine: str | None = None,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        copy: bool = True,
        render_mode: str | None = None,
    ) -> None:
        """Make games; the arguments are those of :class:`PongVectorEnv`."""
        mode = AutoresetMode(autoreset_mode)
        setup = Setup.of(2, limit=max_episode_steps, mode=mode)
        space = spaces.MultiDiscrete([3, 3])
        super().__init__(num_envs, setup, space, engine, mode, copy, render_mode)
