"""Compiles kernels with numba, and keeps the machine code on disk.

numba's own cache looks at the file of the function alone, here always ``kernels.py``. So the cache
here goes by a fingerprint of all functions and constants that are compiled.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from agym._system.extras import require
from agym.envs.rules.binding import Binder, fingerprint
from agym.envs.rules.contract import RuleBook
from agym.envs.rules.kernels import begin_some, play_some, show_some
from agym.envs.rules.refusal import refusal
from agym.envs.rules.rng import METHODS, Rng
from agym.planning.caching import cache_folder

EXTRA = "vectorize"

# Nothing in a kernel allocates, so no references are counted (`_nrt`): that would take half of a
# small game's time.
OPTIONS = {"nogil": True, "_nrt": False}

log = logging.getLogger("agym.vectorize")

# numba's dispatchers are not to be made by two threads at the same time.
_lock = threading.Lock()


class Kernels:
    """The compiled loops of a rule book.

    Attributes:
        begin: ``begin_some`` of ``kernels.py``.
        play: ``play_some``.
        show: ``show_some``.
    """

    def __init__(self, book: RuleBook) -> None:
        numba = require("numba", EXTRA)
        install_rng()
        self._book = book
        methods = (getattr(Rng, name) for name in METHODS)
        self._mark = fingerprint(
            begin_some, play_some, show_some, *methods, *book.functions.values(), OPTIONS
        )
        self._told = False
        binder = Binder(book.replaced, numba.njit(inline="always", **OPTIONS))
        self.begin, self.play, self.show = map(binder.bind, (begin_some, play_some, show_some))

    def compile(self, kernel: Any, arguments: Sequence[Any]) -> None:
        """Compile a kernel for arguments of these types, or load it from the disk.

        Raises:
            UsageError: numba cannot compile the rules; the message names their line.
        """
        numba = require("numba", EXTRA)
        with _lock:
            kernel._cache = _disk_cache()(kernel.py_func, self._mark, self._tell)
            try:
                kernel.compile(tuple(map(numba.typeof, arguments)))
            except Exception as error:
                raise refusal(self._book, error) from error

    def _tell(self) -> None:
        """Say once per rule book that something is compiled."""
        if not self._told:
            self._told = True
            log.warning(
                "compiling the rules of %s, which takes some seconds; the next time they are"
                " loaded from %s",
                self._book.name, cache_folder(),
            )  # fmt: skip


@cache
def kernels_of(book: RuleBook) -> Kernels:
    """Return the kernels of a rule book, which all its batches in this process share."""
    return Kernels(book)


@cache
def install_rng() -> None:
    """Teach numba the methods of :class:`~agym.envs.rules.rng.Rng`."""
    numba, extending = require("numba", EXTRA), require("numba.extending", EXTRA)
    binder = Binder({}, numba.njit(**OPTIONS))
    for name in METHODS:
        _install(extending, binder, name)


def _install(extending: Any, binder: Binder, name: str) -> None:
    method = binder.copy(getattr(Rng, name))

    def resolve(self: Any, *_: Any) -> Any:
        return method if self.instance_class is Rng else None

    resolve.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    types = require("numba", EXTRA).types
    extending.overload_method(types.NamedUniTuple, name, jit_options=OPTIONS)(resolve)


@cache
def _disk_cache() -> Any:
    """Return the class of numba's caches that go by a fingerprint."""
    caching = require("numba.core.caching", EXTRA)

    class Locator(caching._CacheLocator):  # type: ignore[misc, name-defined]
        mark = ""

        def get_cache_path(self) -> str:
            return str(cache_folder() / "rules")

        def get_source_stamp(self) -> str:
            return self.mark

        def get_disambiguator(self) -> str:
            return self.mark[:32]

        @classmethod
        def from_function(cls, function: Any, file: str) -> Any:
            return cls()

    class DiskCache(caching.FunctionCache):  # type: ignore[misc, name-defined]
        def __init__(self, function: Any, mark: str, tell: Any) -> None:
            self._mark, self._tell = mark, tell
            locator = type("Locator", (Locator,), {"mark": mark})
            self._impl_class = type(
                "Impl", (caching.CompileResultCacheImpl,), {"_locator_classes": [locator]}
            )
            super().__init__(function)

        def _index_key(self, signature: Any, codegen: Any) -> Any:
            return signature, codegen.magic_tuple(), self._mark

        def load_overload(self, signature: Any, context: Any) -> Any:
            found = None
            with suppress(OSError):
                found = super().load_overload(signature, context)
            if found is None:
                self._tell()
            return found

        def save_overload(self, signature: Any, result: Any) -> None:
            with suppress(OSError):  # compiled again the next time
                super().save_overload(signature, result)

    return DiskCache
