"""What tests look at that users do not: all in one place, so that it is seen how much that is."""

from __future__ import annotations

from typing import Any


def engine_of(envs: Any) -> Any:
    """The engine under environments, of either API."""
    return envs._engine


def usual_of(envs: Any) -> float | None:
    """How long steps usually take, once that is known, where they live now."""
    usual: float | None = engine_of(envs)._moving._watch._usual
    return usual


def stays_for_good(envs: Any) -> bool:
    """Whether nobody tries any more to have environments live elsewhere."""
    over: bool = engine_of(envs)._moving._over
    return over


def executor_of(envs: Any) -> Any:
    """The executor under environments."""
    return envs._executor


def hub_of(page: Any) -> Any:
    """What a live page is made of."""
    return page._hub
