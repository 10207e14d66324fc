"""Variants of agym: the cost of infos and of copies.

::

    infos:HumanoidStandup-v5:16    all infos, against infos="none"
    copies:ALE/Pong-v5:64          copied batches, against views, against views copied by the caller
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.systems.base import Contest, System
from benchmarks.systems.runners import AgymProcess


class WithoutInfos(AgymProcess):
    """Infos are dropped in the worker."""

    name = 'agym infos="none"'
    options = {"infos": "none"}  # noqa: RUF012


@dataclass(frozen=True)
class InfosWorkload(Contest):
    """Environments of one kind, with and without their infos."""

    @property
    def name(self) -> str:
        return f"infos of {super().name}"

    @property
    def systems(self) -> Sequence[type[System]]:
        return (AgymProcess, WithoutInfos)


class Kept(AgymProcess):
    """Default batches, of which the latest is kept until the next, as a policy does."""

    name = "agym by default"
    _latest: Any = None

    def step(self, actions: Any) -> None:
        self._latest = self._envs.step(actions)


class Views(Kept):
    """Batches that are views, valid until the second batch after theirs."""

    name = "agym copy=False"
    options = {"copy": False}  # noqa: RUF012


class CopiedViews(Views):
    """Views whose observations the caller copies."""

    name = "agym copy=False, copied"

    def step(self, actions: Any) -> None:
        self._latest = self._envs.step(actions)[0].copy()


@dataclass(frozen=True)
class CopiesWorkload(Contest):
    """Environments of one kind, with and without copies of their observations."""

    @property
    def name(self) -> str:
        return f"copies of {super().name}"

    @property
    def systems(self) -> Sequence[type[System]]:
        return (Kept, Views, CopiedViews)


INFOS, COPIES = InfosWorkload("HumanoidStandup-v5", 16), CopiesWorkload("ALE/Pong-v5", 64)
VARIANTS: tuple[Contest, ...] = (INFOS, COPIES)
