"""The engine of twins that compute with arrays: steps all environments of a family at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium.vector.utils import create_empty_array

from agym.core.hosts.vector.twins import PartialStepError
from agym.core.protocol.typing import Array
from agym.rules.engines import Outputs
from agym.rules.kernels import DISABLED, GAME, NEXT_STEP, SAME_STEP
from agym.twins.numpy_functions import Generators

# The ids of some environments, or a slice for all of them, which is faster.
Rows = Array | slice
ALL = slice(None)

# Columns of infos: values of some environments, by key.
Columns = dict[str, Array]


class Advanced(NamedTuple):
    """The results of a step of some environments, with a row for each.

    Attributes:
        rewards: The rewards.
        terminated: Whether each episode has ended.
        infos: The infos.
    """

    rewards: Array
    terminated: Array | bool
    infos: Columns


class Family(ABC):
    """A batch of environments of one class, with the same arguments.

    Attributes:
        original: An environment of Gymnasium, unwrapped, whose arguments all environments have.
        num_envs: Number of environments.
        random: The environments' generators of random numbers.
        failures: The exceptions of environments that failed in the last step.
        min_envs: With fewer environments, ``backend="auto"`` uses the originals.
    """

    min_envs: ClassVar[int] = 2

    def __init__(self, original: Any, num_envs: int, random: Generators) -> None:
        self.original, self.num_envs, self.random = original, num_envs, random
        self.failures: dict[int, Exception] = {}

    @classmethod
    def how(cls, num_envs: int) -> str:
        """Return a phrase that says how a batch is computed, such as "with arrays"."""
        return "with arrays"

    @abstractmethod
    def begin(self, rows: Rows) -> None:
        """Start episodes."""

    @abstractmethod
    def advance(self, rows: Rows, actions: Array) -> Advanced:
        """Step environments."""

    @abstractmethod
    def observe(self, rows: Rows) -> Array:
        """Return observations."""

    @abstractmethod
    def infos(self, rows: Rows) -> Columns:
        """Return the infos of environments that were just reset."""

    @abstractmethod
    def get_state(self, i: int) -> Any:
        """Return the state of an environment, without its random numbers."""

    @abstractmethod
    def pose(self, i: int) -> None:
        """Give the original the state of an environment, to render it."""

    @abstractmethod
    def set_state(self, i: int, state: Any) -> None:
        """Continue an environment from a state."""

    def close(self) -> None:
        """Free threads."""


class ArrayEngine:
    """Plays the episodes of a family.

    Attributes:
        games: A record of ``GAME`` per environment, of which ``age`` and ``over`` are used.
    """

    def __init__(self, family: Family, num_envs: int, limit: int | None, mode: int) -> None:
        self.family = family
        self.games: Any = np.zeros(num_envs, GAME)
        self._limit, self._mode, self._num_envs = limit or -1, mode, num_envs
        self._all = self._range = 0, num_envs
        self._ages, self._over = self.games["age"], self.games["over"]
        self._space = family.original.observation_space
        # The latest rows. The infos of environments that were reset, and of those that stepped.
        self._rewards = np.zeros(num_envs)
        self._terminated, self._truncated = np.zeros((2, num_envs), bool)
        self._parts: list[tuple[Rows, Columns]] = []

    def outputs(self) -> Outputs:
        """Return new arrays for the results of a step."""
        return new_outputs(self._space, self._num_envs)

    own_outputs = outputs

    def begin(self, mask: Array) -> None:
        """Start episodes of the environments of a mask, ``bool[n]``."""
        self._range = self._all
        self._begin(mask)

    def _begin(self, mask: Array) -> None:
        rows = ALL if mask.all() else np.flatnonzero(mask)
        self.family.begin(rows)
        self._ages[rows] = 0
        for column in (self._over, self._rewards, self._terminated, self._truncated):
            column[rows] = 0
        self._parts = [(rows, self.family.infos(rows))]

    def play(self, actions: Array, first: int, stop: int) -> None:
        """Step a range of environments; with DISABLED, those that are over do not change."""
        self._range = first, stop
        rows, parts, inside = self._rows, list[tuple[Rows, Columns]](), self._inside
        over = self._over & inside
        if over.any():
            rows = np.flatnonzero(inside & ~over)
            if self._mode == DISABLED:
                self._rewards[over] = 0.0
            else:
                self._begin(over)
                parts = self._parts
        if not isinstance(rows, np.ndarray) or len(rows):
            result = self.family.advance(rows, actions[rows])
            self._rewards[rows], self._terminated[rows] = result.rewards, result.terminated
            self._ages[rows] += 1
            self._truncated[rows] = self._ages[rows] == self._limit
            np.logical_or(self._terminated, self._truncated, out=self._over)
            parts = [*parts, (rows, result.infos)]
        self._parts = parts
        if self.family.failures:
            failures, self.family.failures = self.family.failures, {}
            raise PartialStepError(failures)

    def show(self, out: Outputs) -> Array | None:
        """Write the results of the last step; with same-step autoreset, start the next episodes."""
        out.infos.clear()
        out.final_infos.clear()
        rows, inside = self._rows, self._inside
        for shown, column in zip(
            (out.rewards, out.terminated, out.truncated),
            (self._rewards, self._terminated, self._truncated), strict=True,
        ):  # fmt: skip
            shown[rows] = column[rows]
        over = self._over & inside
        if self._mode == SAME_STEP and over.any():
            *begun, (stepped, infos) = self._parts
            ids = np.arange(self._num_envs)[stepped]
            ended, running = ids[over[ids]], ids[~over[ids]]
            write(out.finals, ended, self.family.observe(ended))
            finals = taken(infos, np.searchsorted(ids, ended))
            out.final_infos.update(self._joined([(ended, finals)]))
            self._begin(over)
            self._parts += begun
            if len(running):
                self._parts.append((running, taken(infos, np.searchsorted(ids, running))))
        write(out.observations, rows, self.family.observe(rows))
        out.infos.update(self._joined(self._parts))
        return None if self._mode == NEXT_STEP else over

    @property
    def _rows(self) -> Rows:
        first, stop = self._range
        return ALL if stop - first == self._num_envs else np.arange(first, stop)

    @property
    def _inside(self) -> Array:
        inside = np.zeros(self._num_envs, bool)
        inside[slice(*self._range)] = True
        return inside

    def _joined(self, parts: list[tuple[Rows, Columns]]) -> dict[str, Array]:
        """Return a column and a mask per key."""
        infos: dict[str, Array] = {}
        if len(parts) == 1 and parts[0][0] is ALL:
            for key, values in parts[0][1].items():
                infos[key], infos[f"_{key}"] = values, np.ones(self._num_envs, bool)
            return infos
        parts = sorted(parts, key=lambda part: int(np.arange(self._num_envs)[part[0]][0]))
        for rows, columns in parts:
            for key, values in columns.items():
                if key not in infos:
                    dtypes = {each[key].dtype for _, each in parts if key in each}
                    dtype = np.dtype(object) if len(dtypes) > 1 else values.dtype
                    infos[key] = np.zeros((self._num_envs, *values.shape[1:]), dtype)
                    infos[f"_{key}"] = np.zeros(self._num_envs, bool)
                infos[key][rows], infos[f"_{key}"][rows] = values, True
        return infos

    def get_state(self, i: int) -> tuple[Any, bytes]:
        """Return the state of an environment, with its header."""
        return self.family.get_state(i), self.games[i].tobytes()

    def set_state(self, i: int, state: tuple[Any, bytes]) -> None:
        """Continue an environment from a state."""
        self.family.set_state(i, state[0])
        self.games[i] = np.frombuffer(state[1], GAME)[0]

    def close(self) -> None:
        """Free threads."""
        self.family.close()


def new_outputs(space: Any, n: int) -> Outputs:
    """Return new arrays for the results of a step of ``n`` environments."""
    observations, finals = (create_empty_array(space, n, np.zeros) for _ in range(2))
    flags = np.empty(n, bool), np.empty(n, bool)
    return Outputs(observations, np.empty(n), *flags, {}, finals, {})


def write(observations: Any, rows: Rows, values: Any) -> None:
    """Write rows of observations, which may be tuples of arrays."""
    if isinstance(observations, tuple):
        for part, part_values in zip(observations, values, strict=True):
            part[rows] = part_values
    else:
        observations[rows] = values


def taken(columns: Columns, rows: Array) -> Columns:
    """Return some rows of columns."""
    return {key: values[rows] for key, values in columns.items()}
