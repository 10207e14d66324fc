"""Coroutine environments of text, as language models play them."""

from __future__ import annotations

import asyncio
import random
from typing import Any


class Guess:
    """Guess a number from 1 to ``most``: 1 for the right one, 0 else; cut off after ``turns``."""

    def __init__(self, most: int = 20, turns: int = 5) -> None:
        self.most = most
        self.turns = turns
        self.random = random.Random()

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        if seed is not None:
            self.random.seed(seed)
        self.number = (options or {}).get("number") or self.random.randint(1, self.most)
        self.left = self.turns
        return f"guess a number up to {self.most}", {"number": self.number}

    async def step(self, action: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        await asyncio.sleep(0)
        if action == "raise":
            raise RuntimeError("the tool is broken")
        self.left -= 1
        guess = int(action)
        right = guess == self.number
        told = "right" if right else "higher" if guess < self.number else "lower"
        return told, float(right), right, not right and self.left == 0, {"left": self.left}

    async def close(self) -> None:
        pass


class Meeting:
    """A step ends when as many environments of this event loop step as are to meet."""

    here: asyncio.Barrier

    def __init__(self, parties: int) -> None:
        if getattr(Meeting, "parties", None) != parties:
            Meeting.here = asyncio.Barrier(parties)
            Meeting.parties = parties

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        return "come", {}

    async def step(self, action: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        place = await Meeting.here.wait()
        return f"met as {place}", 1.0, True, False, {}

    async def close(self) -> None:
        Meeting.parties = None
