"""Public records: what a call gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, NoReturn

from agym.core.type_variables import Observations


def _refuse_await(_: object) -> NoReturn:
    """Say that a result is there already."""
    raise TypeError(
        "this result is there already, without `await`: agym.make has calls that wait, and"
        " agym.make_async those that are awaited, once each"
    )


class ResetResult(NamedTuple, Generic[Observations]):
    """What ``reset`` gives, unpacked as in Gymnasium: ``observations, infos``.

    Attributes:
        observations: One per environment: stacked arrays of shape ``(n, *shape)`` in the
            space's dtype (nested as the space is nested), a list with ``output="list"``, or
            tensors or JAX's arrays likewise.
        infos: A list of one dict per environment.
    """

    observations: Observations
    infos: list[dict[str, Any]]


class StepResult(NamedTuple, Generic[Observations]):
    """What ``step`` gives, unpacked as Gymnasium's five-tuple.

    Attributes:
        observations: As in :class:`ResetResult`.
        rewards: ``float64[n]``, or a list of floats with ``output="list"``.
        terminated: ``bool[n]``, or a list of bools.
        truncated: ``bool[n]``, or a list of bools.
        infos: A list of one dict per environment. Under ``autoreset="same_step"`` the dict of
            an environment that finished holds ``final_obs``, as the environment gave it, and
            ``final_info``.
    """

    observations: Observations
    rewards: Any
    terminated: Any
    truncated: Any
    infos: list[dict[str, Any]]


class Batch(NamedTuple, Generic[Observations]):
    """What ``recv`` gives: the environments whose step ended first, the oldest first.

    Attributes:
        env_ids: Which environments these are: ``int64[k]``, or a list.
        observations: As in :class:`StepResult`, for these environments in this order.
        rewards: Likewise.
        terminated: Likewise.
        truncated: Likewise.
        infos: Likewise.
    """

    env_ids: Any
    observations: Observations
    rewards: Any
    terminated: Any
    truncated: Any
    infos: list[dict[str, Any]]


for _kind in (ResetResult, StepResult, Batch):
    _kind.__await__ = _refuse_await  # type: ignore[union-attr] # checkers refuse it themselves


@dataclass(frozen=True)
class Fault:
    """What cut the episode of an environment off; found as ``info["fault"]``.

    Attributes:
        env_id: The environment.
        kind: ``"died"`` (its worker did), ``"timeout"`` or ``"raised"``.
        operation: What it was doing: ``"step"``, ``"reset"``, ...; ``"idle"`` if nothing.
        error: What happened, in a line.
        traceback: The environment's own traceback as text, if it raised.
        worker: Index of its worker, ``None`` if it has none of its own.
        pid: Process id of that worker.
        exitcode: How that ended: an exit code, or a negative signal number.
        seed: Seed of the environment's last explicit reset.
        episode: Episodes begun so far, ``None`` if that is not known.
        step: Steps of this episode, ``None`` if that is not known.
        action: The last action, where it is known.
        culprit: The environment that was running when the worker died, if that could be told.
        replay: Why it could not be brought back by a replay, ``""`` if none was tried.
        capsule: The file written about it, ``""`` if none was.
    """

    env_id: int
    kind: str
    operation: str
    error: str
    traceback: str = ""
    worker: int | None = None
    pid: int | None = None
    exitcode: int | None = None
    seed: int | None = None
    episode: int | None = None
    step: int | None = None
    action: Any = None
    culprit: int | None = None
    replay: str = ""
    capsule: str = ""
