"""Public records: what a call gives back."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, NoReturn

from agym.protocol.typing import Observations


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
