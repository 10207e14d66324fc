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

    def abandon(self) -> None:
        """Let go of it, in a forked child: of descriptors, without a word to anybody.

        Only the thread that forked exists here, and another one may have held any lock: so none
        is taken. And the parent's owners are told in any order.
        """


class ForkListener(Protocol):
    """Something whose memory a forked child shares."""

    def before_fork(self) -> None:
        """Take note, in the parent, just before."""


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()
_listeners: weakref.WeakSet[ForkListener] = weakref.WeakSet()
_unannounced: ContextVar[bool] = ContextVar("untold", default=False)


def abandon_in_forks(owner: Owner) -> None:
    """Have ``owner.abandon()`` called in every child that is forked while it lives."""
    _owners.add(owner)


def notify_before_forks(lender: ForkListener) -> None:
    """Have ``lender.before_fork()`` called in this process whenever it is about to fork."""
    _listeners.add(lender)


@contextmanager
def forking_worker() -> Iterator[None]:
    """A worker is about to be forked, which uses nothing of what the caller was lent."""
    token = _unannounced.set(True)
    try:
        yield
    finally:
        _unannounced.reset(token)


def _notify_all() -> None:
    if _unannounced.get():
        return
    for lender in [*_listeners]:
        lender.before_fork()


def _abandon_all() -> None:
    _listeners.clear()
    owners = [*_owners]
    _owners.clear()
    for owner in owners:
        with suppress(Exception):  # another thread was in the middle of changing it
            owner.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_notify_all, after_in_child=_abandon_all)
