"""Gymnasium's registry in workers: there it is what it is in the process that starts them.

A factory such as ``lambda: gymnasium.make("My-v0")`` looks its id up in the worker. So the caller's
entries travel with the factories, each time a worker is started::

    caller                                                   worker
    collect() -- plain entries in one pickle ------------->  installed as they are
              -- those with classes, lambdas, ... alone -->  LentSpec: unpickled when it is made
              -- what cannot be pickled: a sentence ------>  raised when it is made

All entries are sent, since nothing tells Gymnasium's own from those that were changed; those take
8 KB and 0.2 ms.
"""

from __future__ import annotations

import operator
import pickle
import sys
import threading
from collections.abc import Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import gymnasium
from gymnasium.envs import registration
from gymnasium.envs.registration import EnvSpec

from agym._system.pickling import dumps_by_value, is_importable
from agym.errors import UsageError
from agym.hosts.base import Factory
from agym.protocol.copying import is_plain


class Entries(NamedTuple):
    """What the registry holds, as it is sent.

    Attributes:
        plain: Pickled together: entries by id that hold nothing but strings, numbers and the like.
        packed: Of each other id the names that an ``EnvSpec`` has from the start, and its pickle.
    """

    plain: bytes
    packed: dict[str, tuple[dict[str, Any], bytes]]


# What is in an ``EnvSpec`` before anybody looks further than at its name.
NAMES = ("id", "namespace", "name", "version")


def collect() -> Entries:
    """Pack this process's registry."""
    plain: dict[str, EnvSpec] = {}
    packed = {}
    for env_id, spec in registration.registry.copy().items():
        if not isinstance(spec, EnvSpec):
            continue
        names = {name: getattr(spec, name) for name in NAMES}
        if type(spec) is LentSpec:  # it was lent to this process, which has not looked at it
            packed[env_id] = names, spec.packed
        elif _holds_only_data(spec):
            plain[env_id] = spec
        else:
            try:
                packed[env_id] = names, dumps_by_value(spec)
            except Exception as error:
                plain[env_id] = EnvSpec(spec.id, partial(refuse_entry, spec.id, str(error)))
    return Entries(pickle.dumps(plain, pickle.HIGHEST_PROTOCOL), packed)


def _holds_only_data(spec: EnvSpec) -> bool:
    """Whether nothing is imported when it is unpickled."""
    wrappers = spec.additional_wrappers
    points = [spec.entry_point, spec.vector_entry_point, *(each.entry_point for each in wrappers)]
    return (
        type(spec) is EnvSpec
        and all(map(_leads_somewhere, points))
        and is_plain(spec.kwargs)
        and all(is_plain(each.kwargs) for each in wrappers)
    )


def _leads_somewhere(entry_point: Any) -> bool:
    """Whether an entry point is known by name in a worker, without an import."""
    if entry_point is None or isinstance(entry_point, str):
        return entry_point is None or is_importable(entry_point.partition(":")[0])
    # Gymnasium's functions that tell what was moved to other packages.
    return getattr(entry_point, "__module__", None) == "gymnasium.envs"


def refuse_entry(env_id: str, why: str, **_: Any) -> NoReturn:
    """Stand for an entry that could not be pickled.

    Raises:
        UsageError: Always.
    """
    raise UsageError(
        f"{env_id!r} cannot be made in a worker, since what is registered cannot be sent to another"
        f" process ({why}): register a class or a function that makes it there, or take"
        " backend='thread'"
    )


class LentSpec(EnvSpec):
    """An entry that becomes a usual ``EnvSpec`` when somebody looks further than at its name.

    What it needs is not imported in workers that do not make it.
    """

    packed: bytes

    def __init__(self, names: dict[str, Any], packed: bytes) -> None:
        vars(self).update(names, packed=packed)

    def __getattribute__(self, name: str) -> Any:
        if name in _LATE and type(self) is LentSpec:
            given = vars(self)
            # Not what was set since then; and all before another thread takes it for an EnvSpec.
            given |= vars(pickle.loads(self.packed)) | given
            self.__class__ = EnvSpec  # type: ignore[assignment]  # that it is from now on
            given.pop("packed", None)
        return object.__getattribute__(self, name)  # whichever class it is of now

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.packed,)


_LATE = frozenset(EnvSpec.__dataclass_fields__) - {*NAMES}


class WorkerRegistry(dict[str, EnvSpec]):
    """The registry of a worker: what the caller had registered stands.

    The caller had imported what a worker imports, and may have registered something else since
    then. So a module that registers an id of the caller's while it is imported here changes
    nothing, and Gymnasium does not warn that it overrides something.
    """

    lent: frozenset[str] = frozenset()

    def __contains__(self, env_id: object) -> bool:
        return super().__contains__(env_id) and not self._is_repeated(env_id)

    def __setitem__(self, env_id: str, spec: EnvSpec) -> None:
        if not self._is_repeated(env_id):
            super().__setitem__(env_id, spec)

    def _is_repeated(self, env_id: object) -> bool:
        return env_id in self.lent and importing(sys._getframe()) is not None


def install(entries: Entries) -> None:
    """Have the caller's registry in this process, a worker."""
    lent: dict[str, EnvSpec] = pickle.loads(entries.plain)
    lent |= {env_id: LentSpec(*packed) for env_id, packed in entries.packed.items()}
    registry = WorkerRegistry(registration.registry | lent)
    registry.lent = frozenset(lent)
    for module in (registration, gymnasium.envs, gymnasium):
        module.registry = registry  # type: ignore[attr-defined]


def with_registry(factories: Sequence[Factory], entries: Entries) -> Sequence[Factory]:
    """Have a registry installed where factories are unpickled, before they are."""
    both: Any = _FactoriesWithEntries(factories, entries)
    return both  # type: ignore[no-any-return]


class _FactoriesWithEntries:
    def __init__(self, factories: Sequence[Factory], entries: Entries) -> None:
        self._factories = factories
        self._entries = entries

    def __reduce__(self) -> tuple[Any, ...]:
        # A tuple is unpickled in order.
        return operator.itemgetter(1), ((_Installation(self._entries), self._factories),)


class _Installation:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    def __reduce__(self) -> tuple[Any, ...]:
        return install, (self._entries,)


def importing(frame: FrameType | None) -> str | None:
    """The module whose import a thread is in the midst of, by the frame where the thread is."""
    # What is beyond a process's start belongs to the one that it was forked from.
    while frame is not None and frame.f_code is not BaseProcess._bootstrap.__code__:  # type: ignore[attr-defined]
        if frame.f_code.co_name == "<module>":
            name: str | None = frame.f_globals.get("__name__")
            if name != "__main__":
                return name
        frame = frame.f_back
    return None


def refuse_import() -> None:
    """Refuse to start workers in a worker that imports what would start them.

    Raises:
        UsageError: A worker is importing a module that makes environments.
    """
    if not isinstance(registration.registry, WorkerRegistry):
        return
    # A module may do that in a thread, and wait for it.
    main = sys._current_frames().get(threading.main_thread().ident or 0)
    module = importing(sys._getframe()) or importing(main)
    if module is not None:
        raise UsageError(
            f"the module {module!r} makes environments while it is imported: put that into a"
            " function, or behind `if __name__ == '__main__':`. Worker processes import it too, and"
            " each of them would start workers of its own"
        )
