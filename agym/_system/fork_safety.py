"""Forks: a copy of this process lets go of what belongs to the original.

A forked child has a copy of every descriptor that its parent has. As long as it lives, workers
would not notice that the parent is gone; and what the child sent would be taken for the parent's.
So whoever holds such things registers here, and the child's copy of it is told to let go, before
anything else runs in the child. The parent notices nothing, but for memory that it has lent and
the child goes on to see.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Protocol


class Owner(Protocol):
    """Something that belongs to one process."""

    def disown(self) -> None:
        """Let go of it, in a forked child: of descriptors, without a word to anybody.

        Only the thread that forked exists here, and another one may have held any lock: so none
        is taken. And the parent's owners are told in any order.
        """


class Lender(Protocol):
    """Something whose memory a forked child shares."""

    def forked(self) -> None:
        """Take note, in the parent, just before."""


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()
_lenders: weakref.WeakSet[Lender] = weakref.WeakSet()
_untold: ContextVar[bool] = ContextVar("untold", default=False)


def disown_in_forks(owner: Owner) -> None:
    """Have ``owner.disown()`` called in every child that is forked while it lives."""
    _owners.add(owner)


def tell_of_forks(lender: Lender) -> None:
    """Have ``lender.forked()`` called in this process whenever it is about to fork."""
    _lenders.add(lender)


@contextmanager
def fork_of_our_own() -> Iterator[None]:
    """A worker is about to be forked, which uses nothing of what the caller was lent."""
    token = _untold.set(True)
    try:
        yield
    finally:
        _untold.reset(token)


def _tell_all() -> None:
    if _untold.get():
        return
    for lender in [*_lenders]:
        lender.forked()


def _disown_all() -> None:
    _lenders.clear()
    owners = [*_owners]
    _owners.clear()
    for owner in owners:
        with suppress(Exception):  # another thread was in the middle of changing it
            owner.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_tell_all, after_in_child=_disown_all)
