"""Options of one reset alone, which automatic resets do not repeat: Stable-Baselines3's rule."""

from __future__ import annotations

from typing import Any


class Once(dict[int, dict[str, Any]]):
    """Options of single environments, by id; one that is not named is reset without any."""


# Options of a reset: the same for every environment and for its automatic resets too, or once.
Options = dict[str, Any] | Once | None


def lasting(options: Options) -> dict[str, Any] | None:
    """What automatic resets repeat."""
    return None if isinstance(options, Once) else options


def as_keywords(options: Options, env_id: int) -> dict[str, Any]:
    """How ``reset`` of one environment is given its options."""
    if not isinstance(options, Once):
        return {"options": options}
    return {"options": options[env_id]} if env_id in options else {}
