"""What travels between processes comes out as it went in."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from agym.core.backends.process.serialization import Buffer, pack, pack_by_value, unpack
from agym.errors import UsageError
from tests.support.equality import same
from tests.support.patience import patience
from tests.support.spaces import Space, any_space, samples, seeds

both = pytest.mark.parametrize("packs", [pack, pack_by_value])


def join(parts: list[Buffer]) -> bytes:
    return b"".join(bytes(part) for part in parts)


@both
@given(space=any_space(), seed=seeds)
def test_values_survive(packs: Any, space: Space, seed: int) -> None:
    strided, objects = np.arange(12).reshape(3, 4)[:, ::2], np.array([None, "a", 3], object)
    values = [samples(space, seed, 2), strided, objects, {"a": b"b", 3: np.zeros(100_000)}]
    assert same(unpack(join(packs(values))), values)


@both
def test_arrays_get_memory_of_their_own(packs: Any) -> None:
    array = np.zeros(1000)
    data = bytearray(join(packs([array, array[:10]])))
    first, second = unpack(data)
    data[:] = b"\xff" * len(data)
    array[:] = 3
    assert not first.any()
    assert not second.any()
    first[:] = 1
    assert first.sum() == 1000


def test_another_process_needs_nothing_of_ours() -> None:
    secret = 41
    packed = join(pack_by_value(lambda: secret + 1))
    code = "from agym.core.backends.process import serialization\n"
    code += f"print(serialization.unpack({packed!r})())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=patience(6),
        check=True,
    )
    assert done.stdout == "42\n"


@both
def test_what_cannot_be_packed(packs: Any) -> None:
    with pytest.raises(UsageError, match="can't be pickled"):
        packs({"lock": threading.Lock()})
