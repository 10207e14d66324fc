"""Single precision, where Gymnasium's arithmetic has it and rewards or flags depend on it."""

from __future__ import annotations

import numpy as np


def single(value: float) -> float:
    """Return a number rounded to single precision.

    A ``float64`` holds sums and products of two ``float32`` precisely enough that rounding it gives
    what ``float32`` arithmetic gives.
    """
    # numba's float() leaves a float32 as it is.
    return float(np.float64(np.float32(value)))
