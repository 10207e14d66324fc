"""Tensors that callers give, as arrays, without knowing their libraries."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_array(value: Any) -> Any:
    """Make an array of a tensor of any library; what is none comes back as it is.

    Torch gives no array of a tensor that is on a GPU or has a gradient. Here only its values
    count, so they are fetched.
    """
    if type(value) is np.ndarray:
        return value
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
    return np.asarray(value) if hasattr(value, "__dlpack__") else value
