"""Tensors that callers give, as arrays, without knowing their libraries."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_array(value: Any) -> Any:
    """Make an array of a tensor of any library; what is none comes back as it is.

    Torch gives no array of a tensor that is on a GPU or has a gradient. Here only its values
    count, so they are fetched.
    """
    if type(value) is np.ndarray or not hasattr(value, "__dlpack__"):
        return value
    return value.numpy(force=True) if hasattr(value, "detach") else np.asarray(value)


def arrays_in(value: Any) -> Any:
    """The same for all tensors in dicts, lists and tuples."""
    if isinstance(value, dict):
        return {key: arrays_in(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(arrays_in, value))
    return as_array(value)
