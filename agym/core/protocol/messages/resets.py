"""How episodes start: the seeds, masks and options of resets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agym.core.protocol.arguments import Ids, as_array, is_integer
from agym.errors import UsageError, UsageTypeError

# One seed for all environments, or one for each.
Seeds = int | Sequence[int | None] | None


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


def take_mask(
    options: dict[str, Any] | None, num_envs: int, seed: Seeds, env_ids: Sequence[int] | None
) -> tuple[dict[str, Any] | None, Sequence[int] | None, Seeds]:
    """Split Gymnasium's ``options={"reset_mask": ...}`` into the other options and env ids.

    Without a mask, the second result is ``env_ids``. The third result is ``seed``; if it has a seed
    per environment, those of the masked ones.

    Raises:
        UsageError: The mask does not have the shape ``(num_envs,)``, or has no true entry; or
            environments are selected by ``env_ids``, too.
        UsageTypeError: The options are not a dict, or the mask is not a boolean array or tensor.
    """
    if options is not None and not isinstance(options, Mapping):
        raise UsageTypeError(f"options={options!r} must be a dict or None")
    if options is None or "reset_mask" not in options:
        return options, env_ids, seed
    if env_ids is not None:
        raise UsageError("pass env_ids= or options={'reset_mask': ...}, not both")
    mask = as_array(options["reset_mask"])
    what = "`options['reset_mask']`"  # Gymnasium's messages
    if not isinstance(mask, np.ndarray):
        raise UsageTypeError(f"{what} must be a numpy array, got {type(mask)}")
    if mask.shape != (num_envs,):
        raise UsageError(f"{what} must have shape `({num_envs},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise UsageTypeError(f"{what} must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise UsageError(
            f"{what} must contain a boolean array with at least one True value, got"
            f" reset_mask={mask}"
        )
    rest = {key: value for key, value in options.items() if key != "reset_mask"}
    masked = [int(i) for i in np.flatnonzero(mask)]
    if isinstance(seed, Sequence | np.ndarray) and len(seed) == num_envs:
        seed = [seed[i] for i in masked]
    return rest, masked, seed


def parse_seeds(seed: Seeds, ids: Ids, given: Sequence[int] | None) -> list[int | None] | None:
    """Return one seed per environment, ``None`` for no seeds.

    Args:
        seed: ``None``; an integer, which gives environment ``i`` the seed ``seed + i`` as in
            Gymnasium; or a sequence with one seed per environment.
        ids: The environments, in ascending order.
        given: The environments in the caller's order, ``None`` for all.

    Raises:
        UsageError: Wrong type, wrong number, or negative.
    """
    if seed is None:
        return None
    if is_integer(seed):
        seeds: list[int | None] = [int(seed) + i for i in ids]
    elif isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str):
        if len(seed) != len(ids):
            raise UsageError(f"seed has {len(seed)} entries for {len(ids)} environments")
        by_id = dict(zip(ids if given is None else (int(i) for i in given), seed, strict=True))
        seeds = [by_id[i] for i in ids]
    else:
        raise UsageError(f"seed must be None, an integer or a sequence of them, not {seed!r}")
    for i, value in zip(ids, seeds, strict=True):
        if value is not None and not (is_integer(value) and value >= 0):
            raise UsageError(
                f"the seed of environment {i} is {value!r}: it must be an integer of at least 0,"
                " or None"
            )
    return [None if value is None else int(value) for value in seeds]
