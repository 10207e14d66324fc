"""How episodes start: the options of resets."""

from __future__ import annotations

from typing import Any, NamedTuple


class PerEnvOptions(dict[int, dict[str, Any]]):
    """Options of single environments, by id; the others are reset without options."""


# Options of a reset. A plain dict is for all environments, and also for automatic resets.
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
    """

    seed: int | None = None
    rng: dict[str, Any] | None = None
    options: dict[str, Any] | None = None
