"""Copies Gymnasium's registry from the process that starts workers into the workers.

A factory such as ``lambda: gymnasium.make("My-v0")`` looks up its id in the worker. So the caller's
entries are sent with the factories, each time a worker starts::

    caller                                                     worker
    collect() -- plain entries in one pickle --------------->  installed directly
              -- entries with classes, lambdas, ..., each -->  LentSpec: unpickled when it is made
              -- unpicklable entries: an error message ----->  raised when it is made

All entries are sent, because Gymnasium's own entries cannot be told from changed ones. They take
8 KB and 0.2 ms.
"""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, NamedTuple, NoReturn, cast

import gymnasium
from gymnasium.envs import registration
from gymnasium.envs.registration import EnvSpec

from agym.core._system.pickling import Preceded, dumps_by_value, is_importable
from agym.core.hosts.factories import Factory
from agym.core.protocol.value_copies import is_plain
from agym.errors import UsageError


class Entries(NamedTuple):
    """The registry in the form in which it is sent.

    Attributes:
        plain: One pickle of the entries, by id, that contain only strings, numbers and the like.
        packed: For each other id: the :data:`NAMES` of its ``EnvSpec``, and its pickle.
    """

    plain: bytes
    packed: dict[str, tuple[dict[str, Any], bytes]]


# Fields of a ``LentSpec`` that can be read without unpickling it.
NAMES = ("id", "namespace", "name", "version")


def collect() -> Entries:
    """Pack this process's registry."""
    plain: dict[str, EnvSpec] = {}
    packed = {}
    for env_id, spec in registration.registry.copy().items():
        if not isinstance(spec, EnvSpec):
            continue
        names = {name: getattr(spec, name) for name in NAMES}
        if type(spec) is LentSpec:  # this process received it, and has not unpickled it yet
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
    """Return whether unpickling a spec imports nothing."""
    wrappers = spec.additional_wrappers
    points = [spec.entry_point, spec.vector_entry_point, *(each.entry_point for each in wrappers)]
    return (
        type(spec) is EnvSpec
        and all(map(_is_findable, points))
        and is_plain(spec.kwargs)
        and all(is_plain(each.kwargs) for each in wrappers)
    )


def _is_findable(entry_point: Any) -> bool:
    """Return whether a worker can find an entry point by name; imports nothing."""
    if entry_point is None or isinstance(entry_point, str):
        return entry_point is None or is_importable(entry_point.partition(":")[0])
    # Gymnasium's functions that report that environments have moved to other packages.
    return getattr(entry_point, "__module__", None) == "gymnasium.envs"


def refuse_entry(env_id: str, why: str, **_: Any) -> NoReturn:
    """Raise the error of an entry that could not be pickled; it replaces the entry point.

    Raises:
        UsageError: Always.
    """
    raise UsageError(
        f"{env_id!r} cannot be made in a worker, because its registration can't be pickled"
        f" ({why}): register an importable class or function, or use backend='thread'"
    )


class LentSpec(EnvSpec):
    """An entry that becomes a plain ``EnvSpec``, and imports what it needs, on first use."""

    packed: bytes

    def __init__(self, names: dict[str, Any], packed: bytes) -> None:
        vars(self).update(names, packed=packed)

    def __getattribute__(self, name: str) -> Any:
        if name in _LATE and type(self) is LentSpec:
            fields = vars(self)
            # Two threads may get here at once. Keep fields that were set since the spec arrived,
            # and fill in all fields before the class changes: another thread that sees an
            # ``EnvSpec`` reads them without coming here.
            fields |= vars(pickle.loads(self.packed)) | fields
            self.__class__ = EnvSpec  # type: ignore[assignment]
            fields.pop("packed", None)
        return object.__getattribute__(self, name)  # of either class

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.packed,)


_LATE = frozenset(EnvSpec.__dataclass_fields__) - {*NAMES}


class WorkerRegistry(dict[str, EnvSpec]):
    """The registry of a worker, in which the caller's entries have priority.

    The caller has already imported the modules that a worker imports, and may have changed entries
    since then. So a module that registers such an id while it is imported here changes nothing, and
    Gymnasium does not warn that an entry is overridden.
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
    """Install the caller's registry in this process, a worker."""
    lent: dict[str, EnvSpec] = pickle.loads(entries.plain)
    lent |= {env_id: LentSpec(*packed) for env_id, packed in entries.packed.items()}
    registry = WorkerRegistry(registration.registry | lent)
    registry.lent = frozenset(lent)
    for module in (registration, gymnasium.envs, gymnasium):
        module.registry = registry  # type: ignore[attr-defined]


def with_registry(factories: Sequence[Factory]) -> Sequence[Factory]:
    """Wrap factories so that this process's registry is installed before they are unpickled."""
    return cast(Sequence[Factory], Preceded(factories, install, collect()))


def importing(frame: FrameType | None) -> str | None:
    """Return the module that a thread is importing, given the thread's frame."""
    # Outer frames of a forked process belong to its parent.
    while frame is not None and frame.f_code is not BaseProcess._bootstrap.__code__:  # type: ignore[attr-defined]
        if frame.f_code.co_name == "<module>":
            name: str | None = frame.f_globals.get("__name__")
            if name != "__main__":
                return name
        frame = frame.f_back
    return None


def refuse_import() -> None:
    """Refuse to start workers while a worker imports the module that starts them.

    Raises:
        UsageError: A worker is importing a module that makes environments.
    """
    if not isinstance(registration.registry, WorkerRegistry):
        return
    # The module may start workers in a thread, and wait for that thread.
    main = sys._current_frames().get(threading.main_thread().ident or 0)
    module = importing(sys._getframe()) or importing(main)
    if module is not None:
        raise UsageError(
            f"the module {module!r} makes environments while it is imported: move that into a"
            " function, or below `if __name__ == '__main__':`. Worker processes import it, too, and"
            " each would start more workers"
        )
