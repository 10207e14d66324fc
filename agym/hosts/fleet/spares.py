"""Which spare is reset ahead for which environment, for both kinds of hosts.

A reset ahead is made as the environment's own next reset would be: with the same seed and options.
The episode then is what it would have been, whether a spare was ready or not. So spares change only
how long resets take::

    idle --> reset ahead for environment i --> taken by i, whose old environment is idle now
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from agym.hosts.fleet.seeding import Lineage, seed_of


class Beginning(NamedTuple):
    """How an episode begins.

    Attributes:
        lineage: Of its seed; ``None`` for no seed.
        options: Options of the reset.
    """

    lineage: Lineage | None
    options: dict[str, Any] | None

    def same(self, other: Beginning) -> bool:
        """Whether two resets are alike. Options are compared by identity: most are arrays."""
        return self.lineage == other.lineage and self.options is other.options

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the reset, which refer to the options."""
        seed = seed_of(self.lineage)
        given = {"seed": seed, "options": self.options}
        return {name: value for name, value in given.items() if value is not None}


class Pending(Protocol):
    """The result of a reset: a ``concurrent.futures.Future``, or a task."""

    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def exception(self) -> BaseException | None: ...


class Keyed(Protocol):
    """An environment with its own task or thread; equal keys may stand in for each other."""

    @property
    def key(self) -> object: ...


Owner = TypeVar("Owner", bound=Keyed)


@dataclass(eq=False)
class Ahead(Generic[Owner]):
    """A spare that was reset ahead, or is about to be.

    Attributes:
        owner: The spare.
        i: The environment that it is for.
        beginning: How its episode begins.
        result: What the reset returns: how the episode began, observation and info.
    """

    owner: Owner
    i: int
    beginning: Beginning
    result: Any

    @property
    def failed(self) -> bool:
        result: Pending = self.result
        return result.done() and (result.cancelled() or result.exception() is not None)


class SparePool(Generic[Owner]):
    """The spares of one host.

    Attributes:
        idle: Those that nothing was asked of.
        ahead: Those that were reset ahead, or are being reset.
    """

    def __init__(self) -> None:
        self.idle: list[Owner] = []
        self.ahead: list[Ahead[Owner]] = []

    def take(self, i: int, beginning: Beginning, key: object) -> Ahead[Owner] | None:
        """Take the spare that was reset as an environment's next episode begins, if there is one.

        One that is ready goes before one that is still being reset, and both go before none.
        """
        fits = [
            each
            for each in self.ahead
            if each.beginning.same(beginning) and each.owner.key == key and not each.failed
        ]
        if not fits:
            return None
        best = min(fits, key=lambda each: (not each.result.done(), each.i != i))
        self.ahead.remove(best)
        return best

    def failures(self) -> list[Owner]:
        """Remove and return the spares whose reset failed."""
        failed = [each for each in self.ahead if each.failed]
        self.ahead = [each for each in self.ahead if not each.failed]
        return [each.owner for each in failed]

    def assign(
        self,
        begun: int,
        keys: Sequence[object],
        steps_of: Callable[[int], int],
        next_of: Callable[[int], Beginning],
    ) -> Iterator[tuple[Owner, int, Beginning]]:
        """Yield idle spares, each with the environment to reset it for, and how.

        Those come first that have gone longest without an end. What was reset for the environment
        that has just begun, and does not fit any more, is idle again.

        Args:
            begun: The environment whose episode has just begun.
            keys: Which spares each environment can take.
            steps_of: Returns the steps of an environment's episode so far; -1 if it has had none.
            next_of: Returns how an environment's next episode begins.
        """
        for each in [each for each in self.ahead if each.i == begun]:
            if not next_of(begun).same(each.beginning):
                each.result.cancel()  # unless it is under way, and the next one waits for it
                self.ahead.remove(each)
                self.idle.append(each.owner)
        while self.idle:
            served = {each.i for each in self.ahead}
            can = {owner.key for owner in self.idle}
            left = [i for i, key in enumerate(keys) if i not in served and key in can]
            i = max(left, key=steps_of, default=None)
            if i is None or steps_of(i) < 0:
                return
            owner = next(owner for owner in self.idle if owner.key == keys[i])
            self.idle.remove(owner)
            yield owner, i, next_of(i)
