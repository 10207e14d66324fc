"""Public records: what a call gives back."""

from __future__ import annotations

from typing import Any, NamedTuple


class ResetResult(NamedTuple):
    """What ``reset`` gives, unpacked as in Gymnasium: ``observations, infos``.

    Attributes:
        observations: One per environment: stacked arrays of shape ``(n, *shape)`` in the
            space's dtype (nested as the space is nested), or a list with ``output="list"``.
        infos: A list of one dict per environment.
    """

    observations: Any
    infos: list[dict[str, Any]]


class StepResult(NamedTuple):
    """What ``step`` gives, unpacked as Gymnasium's five-tuple.

    Attributes:
        observations: As in :class:`ResetResult`.
        rewards: ``float64[n]``, or a list of floats with ``output="list"``.
        terminated: ``bool[n]``, or a list of bools.
        truncated: ``bool[n]``, or a list of bools.
        infos: A list of one dict per environment. Under ``autoreset="same_step"`` the dict of
            an environment that finished holds ``final_obs`` and ``final_info``.
    """

    observations: Any
    rewards: Any
    terminated: Any
    truncated: Any
    infos: list[dict[str, Any]]


class Batch(NamedTuple):
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
    observations: Any
    rewards: Any
    terminated: Any
    truncated: Any
    infos: list[dict[str, Any]]
