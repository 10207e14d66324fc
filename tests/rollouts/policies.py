"""Policies for the tests of batched ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


def double(observations: Any) -> Any:
    return observations * 2


async def double_later(observations: Any) -> Any:
    await asyncio.sleep(0)
    return observations * 2


def kinds_of_function() -> Any:
    return pytest.mark.parametrize("function", [double, double_later], ids=["plain", "coroutine"])


class PolicyBroke(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
