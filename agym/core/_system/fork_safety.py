"""Fork safety: a forked child releases the resources of its parent.

A forked child has a copy of each of its parent's descriptors. While the child lives, workers would
not notice the end of the parent, and messages from the child would look like the parent's. Owners
of such resources therefore register here, and their copies in the child are abandoned before
anything else runs there. The parent is not affected, except for leased memory, which the child can
still see.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Protocol


class Owner(Protocol):
    """A resource that belongs to one process."""

    def abandon(self) -> None:
        """Close descriptors in a forked child, without sending anything.

        Only the forking thread exists in the child. Another thread of the parent may have held any
        lock, which then stays locked forever, so implementations must not acquire locks. Owners
        are abandoned in no particular order.
        """


class ForkListener(Protocol):
    """An object whose memory a forked child shares."""

    def before_fork(self) -> None:
        """Run in the parent just before it forks."""


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()
_listeners: weakref.WeakSet[ForkListener] = weakref.WeakSet()
# Per thread: while a thread forks a worker, a fork in another thread is still announced.
_unannounced: ContextVar[bool] = ContextVar("unannounced", default=False)


def abandon_in_forks(owner: Owner) -> None:
    """Call ``owner.abandon()`` in every child that is forked during the owner's lifetime."""
    _owners.add(owner)


def notify_before_forks(listener: ForkListener) -> None:
    """Call ``listener.before_fork()`` in this process whenever it is about to fork."""
    _listeners.add(listener)


@contextmanager
def forking_worker() -> Iterator[None]:
    """Suppress ``before_fork`` while a worker is forked: workers do not use leased memory."""
    token = _unannounced.set(True)
    try:
        yield
    finally:
        _unannounced.reset(token)


def _notify_all() -> None:
    if _unannounced.get():
        return
    for listener in [*_listeners]:
        listener.before_fork()


def _abandon_all() -> None:
    # Forget the parent's objects: the child registers its own, and only those concern its children.
    _listeners.clear()
    owners = [*_owners]
    _owners.clear()
    for owner in owners:
        with suppress(Exception):  # at the fork, another thread may have been changing the owner
            owner.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_notify_all, after_in_child=_abandon_all)
