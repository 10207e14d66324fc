"""Single precision, for arithmetic of Gymnasium that affects rewards or flags."""

from __future__ import annotations

import numpy as np


def single(value: float) -> float:
    """Return a number rounded to single precision.

    A ``float64`` is precise enough for sums and products of two ``float32``: rounding it equals
    ``float32`` arithmetic.
    """
    # np.float64, because numba's float() returns a float32 unchanged.
    return float(np.float64(np.float32(value)))
