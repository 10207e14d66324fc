"""The records that ``reset``, ``step`` and ``recv`` return."""

from __future__ import annotations

import reprlib
from typing import Any, Generic, NamedTuple, NoReturn

import numpy as np

from agym.core.protocol.typing import Flags, Observations, Rewards


def _refuse_await(_: object) -> NoReturn:
    """Refuse ``await``, because the call has already returned the result."""
    raise TypeError(
        "this result is complete; remove `await`. With agym.make calls block; with agym.make_async"
        " each call is awaited once"
    )


class _Shortener(reprlib.Repr):
    def repr1(self, x: Any, level: int) -> str:
        """Shorten subclasses of ``list``, too."""
        return self.repr_list(x, level) if isinstance(x, list) else super().repr1(x, level)


# How much of each field ``repr`` shows. All values of many environments would fill a page.
_SHORT = _Shortener()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 8
_SHORT.maxother = _SHORT.maxstring = 400
_MAX_SHOWN = 32


def _shorten(result: Any) -> str:
    """Show the first and the last values of arrays and the first ones of lists."""
    with np.printoptions(threshold=_MAX_SHOWN, edgeitems=2):
        fields = [f"{name}={_SHORT.repr(value)}" for name, value in result._asdict().items()]
    return f"{type(result).__name__}({', '.join(fields)})"


class ResetResult(NamedTuple, Generic[Observations]):
    """The result of ``reset``, unpacked as in Gymnasium: ``observations, infos``.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2, output="array") as envs:
        ...     observations, infos = envs.reset(seed=0)
        >>> observations.shape, infos
        ((2, 4), [{}, {}])

    Attributes:
        observations: One per environment: stacked arrays of shape ``(n, *shape)`` in the space's
            dtype (nested like the space), or tensors or JAX arrays; or a list with
            ``output="list"``.
        infos: A list of one dict per environment.
    """

    observations: Observations
    infos: list[dict[str, Any]]


class StepResult(NamedTuple, Generic[Observations, Rewards, Flags]):
    """The result of ``step``, unpacked as Gymnasium's five-tuple.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2, output="array") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     observations, rewards, terminated, truncated, infos = envs.step([0, 1])
        >>> rewards, terminated
        (array([1., 1.]), array([False, False]))

    Attributes:
        observations: As in :class:`ResetResult`.
        rewards: ``float64[n]``, or a list of floats with ``output="list"``.
        terminated: ``bool[n]``, or a list of bools.
        truncated: ``bool[n]``, or a list of bools.
        infos: A list of one dict per environment. Under ``autoreset="same_step"`` the dict of an
            environment that finished has ``final_obs``, in the environment's own form, and
            ``final_info``.
    """

    observations: Observations
    rewards: Rewards
    terminated: Flags
    truncated: Flags
    infos: list[dict[str, Any]]


class Batch(NamedTuple, Generic[Observations, Rewards, Flags]):
    """The result of ``recv``: the environments whose step ended first, oldest first.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 4) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     envs.send([0, 1, 0, 1])
        ...     batch = envs.recv(min_envs=2)  # at least two
        ...     envs.send([1] * len(batch.env_ids), batch.env_ids)
        >>> len(batch.observations) == len(batch.env_ids) >= 2
        True

    Attributes:
        env_ids: The environments: ``int64[k]``, or a list.
        observations: As in :class:`StepResult`, for these environments in this order.
        rewards: As in :class:`StepResult`.
        terminated: As in :class:`StepResult`.
        truncated: As in :class:`StepResult`.
        infos: As in :class:`StepResult`.
    """

    env_ids: Any
    observations: Observations
    rewards: Rewards
    terminated: Flags
    truncated: Flags
    infos: list[dict[str, Any]]


for _kind in (ResetResult, StepResult, Batch):
    _kind.__await__ = _refuse_await  # type: ignore[union-attr] # type checkers reject it anyway
    _kind.__repr__ = _shorten  # type: ignore[method-assign]
