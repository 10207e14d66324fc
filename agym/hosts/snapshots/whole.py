"""An environment as one pickle, from which another environment is made.

It is refused where a pickle would lose state: if any part is an ``EzPickle`` of Gymnasium's, which
is unpickled from its constructor's arguments
(https://gymnasium.farama.org/api/utils/#gymnasium.utils.EzPickle).
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from gymnasium.utils import EzPickle

from agym._system.pickling import ByValuePickler


class _Whole(ByValuePickler):
    """Refuses objects that are pickled without their state."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, EzPickle):
            raise pickle.PicklingError(f"{type(obj).__name__} is not pickled with its state")
        return super().reducer_override(obj)


def pack_env(env: Any) -> bytes:
    """Pickle an environment with all of its state.

    Raises:
        Exception: It cannot be pickled, or would lose state.
    """
    file = io.BytesIO()
    _Whole(file, pickle.HIGHEST_PROTOCOL).dump(env)
    return file.getvalue()


def unpack_env(packed: bytes) -> Any:
    """Make an environment from :func:`pack_env`."""
    return pickle.loads(packed)
