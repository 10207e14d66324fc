"""The engine of twins under wrappers: passes the results of an engine through layers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Space

from agym.core.protocol.typing import Array
from agym.rules.engines import Outputs
from agym.rules.kernels import DISABLED, SAME_STEP
from agym.twins.engine import new_outputs, write
from agym.twins.layers import Layer, Stepped

NOBODY = np.arange(0)


class LayeredEngine:
    """Plays the episodes of an engine, whose results pass through layers.

    Attributes:
        engine: The engine below.
        layers: The layers, the innermost first.
    """

    def __init__(
        self, engine: Any, layers: Sequence[Layer], space: Space[Any], num_envs: int, mode: int
    ) -> None:
        self.engine, self.layers, self._space, self._num_envs = engine, layers, space, num_envs
        self._mode, self._raw = mode, engine.outputs()
        # The latest rows above the layers, and the environments of the last call.
        self._shown = self.outputs()
        self._stepped: Array | slice = NOBODY
        self._begun, self._ids = NOBODY, np.arange(num_envs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def outputs(self) -> Outputs:
        """Return new arrays for the results of a step."""
        return new_outputs(self._space, self._num_envs)

    own_outputs = outputs

    def begin(self, mask: Array) -> None:
        """Start episodes of the environments of a mask, ``bool[n]``."""
        self.engine.begin(mask)
        self._inside = slice(None)
        self._stepped, self._begun = NOBODY, np.flatnonzero(mask)

    def play(self, actions: Array, first: int, stop: int) -> None:
        """Step a range of environments; with DISABLED, those that are over do not change."""
        self._inside = slice(first, stop)
        over = self.engine.games["over"][self._inside].copy()
        for layer in reversed(self.layers):
            actions = layer.actions(actions)
        self._stepped, self._begun = self._inside, NOBODY
        if over.any():
            self._stepped = first + np.flatnonzero(~over)
            self._begun = NOBODY if self._mode == DISABLED else first + np.flatnonzero(over)
        self.engine.play(actions, first, stop)

    def show(self, out: Outputs) -> Array | None:
        """Write the results of the last step; with same-step autoreset, start the next episodes."""
        raw, shown, begun, inside = self._raw, self._shown, self._begun, self._inside
        over = self.engine.show(raw)
        infos, final_infos = (
            {**each} if isinstance(each, dict) else {} for each in (raw.infos, raw.final_infos)
        )
        shown.rewards[:] = 0.0
        if len(self._ids[self._stepped]):
            rows, ended = self._rows_below()
            for layer in self.layers:
                rows = layer.stepped(rows)
            write(shown.observations, rows.ids, rows.observations)
            shown.rewards[rows.ids] = rows.rewards
            if len(ended):
                self._add_episodes(final_infos if self._mode == SAME_STEP else infos, ended)
                write(out.finals, rows.ids, rows.observations)
                begun = np.append(begun, ended) if self._mode == SAME_STEP else begun
        if len(begun):
            observations = rows_of(raw.observations, begun)
            for layer in self.layers:
                observations = layer.begun(begun, observations)
            write(shown.observations, begun, observations)
        write(out.observations, inside, rows_of(shown.observations, inside))
        out.rewards[inside], out.terminated[inside] = shown.rewards[inside], raw.terminated[inside]
        out.truncated[inside] = raw.truncated[inside]
        for told, columns in ((out.infos, infos), (out.final_infos, final_infos)):
            told.clear()
            told.update(columns)
        return np.asarray(over) if over is not None else None

    def _rows_below(self) -> tuple[Stepped, Array]:
        """Return the rows of the engine's step, and the environments whose episodes ended."""
        raw, ids = self._raw, self._stepped
        over = raw.terminated[ids] | raw.truncated[ids]
        ended = self._ids[ids][over]
        observations = rows_of(raw.observations, ids)
        if self._mode == SAME_STEP and len(ended):
            observations = copy.deepcopy(observations)
            write(observations, over, rows_of(raw.finals, ended))
        return Stepped(ids, observations, raw.rewards[ids], raw.terminated[ids], over), ended

    def _add_episodes(self, infos: dict[str, Any], ended: Array) -> None:
        """Add what layers tell of episodes, in Gymnasium's format."""
        for layer in self.layers:
            if not layer.key:
                continue
            mask = np.zeros(self._num_envs, bool)
            mask[ended] = True
            columns: dict[str, Array] = {}
            for key, values in layer.episodes(ended).items():
                column = np.zeros(self._num_envs, object)  # Python's numbers, as the original's
                column[ended] = values
                columns |= {key: column, f"_{key}": mask.copy()}
            infos |= {layer.key: columns, f"_{layer.key}": mask}

    def get_state(self, i: int) -> Any:
        """Return the state of an environment and of its wrappers."""
        rows = [column[i].copy() for layer in self.layers for column in layer.columns]
        return *self.engine.get_state(i), rows, rows_of(self._shown.observations, [i])

    def set_state(self, i: int, state: Any) -> None:
        """Continue an environment from a state."""
        *below, rows, observation = state
        self.engine.set_state(i, tuple(below))
        columns = [column for layer in self.layers for column in layer.columns]
        for column, row in zip(columns, rows, strict=True):
            column[i] = row
        write(self._shown.observations, np.array([i]), observation)


def rows_of(observations: Any, ids: Any) -> Any:
    """Return some rows of observations, which may be tuples of arrays."""
    if isinstance(observations, tuple):
        return tuple(part[ids] for part in observations)
    return observations[ids]
