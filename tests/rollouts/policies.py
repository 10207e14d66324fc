"""Policies for the tests of batched ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


def double(observations: Any) -> Any:
    return observations * 2


def later(function: Any) -> Any:
    """Return the coroutine function that does the same."""

    async def function_later(observations: Any) -> Any:
        await asyncio.sleep(0)
        return function(observations)

    return function_later


each_kind = pytest.mark.parametrize(
    "kind", [lambda function: function, later], ids=["plain", "coroutine"]
)


class PolicyBroke(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
