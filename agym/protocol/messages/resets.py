"""How episodes begin: options of resets, and what a replacement restores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class PerEnvOptions(dict[int, dict[str, Any]]):
    """Options of single environments, by id; the others are reset without options."""


# Options of a reset. A plain dict is for all environments, and for automatic resets too.
Options = dict[str, Any] | PerEnvOptions | None


def lasting(options: Options) -> dict[str, Any] | None:
    """Return the options that automatic resets repeat."""
    return None if isinstance(options, PerEnvOptions) else options


def as_keywords(options: Options, env_id: int) -> dict[str, Any]:
    """Return the options as keyword arguments for ``reset`` of one environment."""
    if not isinstance(options, PerEnvOptions):
        return {"options": options}
    return {"options": options[env_id]} if env_id in options else {}


class EpisodeStart(NamedTuple):
    """The seed and options of a reset.

    Without a seed, ``rng`` is the previous state of the environment's generator, if it has one.
    With spares, ``lineage`` says from which seed this one was derived, and for which reset.
    """

    seed: int | None = None
    rng: dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    lineage: tuple[int, int] | None = None


@dataclass(frozen=True)
class RestoreSpec:
    """The state that a replacement of an environment takes over.

    Attributes:
        used: The environment in place was used already: make another.
        seed: Seed of the last explicit reset.
        reseed: Seed for the first reset, if that has none.
        options: Options for every automatic reset.
        episode: Episodes begun so far.
        observation: The last known one, ``None`` before the first reset.
        start: How the episode to replay began, or a state in it; ``None`` for no replay.
        actions: The actions since then.
        over: Flags with which the episode ended. ``start`` then only restores random numbers.
        retry: How the next episode is to begin: as one that failed. ``None`` for another one.
    """

    used: bool = True
    seed: int | None = None
    reseed: int | None = None
    options: dict[str, Any] | None = None
    episode: int = 0
    observation: Any = None
    start: Any = None  # an ``EpisodeStart`` or an ``EnvState``
    actions: Sequence[Any] = ()
    over: tuple[bool, bool] | None = None
    retry: EpisodeStart | None = None
