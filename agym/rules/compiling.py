"""Compiles kernels with numba, caches the machine code on disk, and explains refused rules.

numba's cache only checks the file of the function, here always ``kernels.py``. So this cache uses a
fingerprint of all functions and constants that are compiled.
"""

from __future__ import annotations

import inspect
import linecache
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import FunctionType
from typing import Any, TypeVar

from agym.core._system.extras import require
from agym.core.planning.caching import cache_folder
from agym.errors import UsageError
from agym.rules.arithmetic import CODES, EXTRA, PARTS, as_python
from agym.rules.binding import Binder, fingerprint, function_of, global_names
from agym.rules.contract import RuleBook
from agym.rules.kernels import begin_some, play_some, show_some

# Kernels do not allocate, so references need not be counted (`_nrt`): that would take half of a
# small game's time. Indices are checked, as in Python, which takes 2 to 25 % of the time.
OPTIONS = {"nogil": True, "_nrt": False, "boundscheck": True}

# In numba's messages: colours; places, in both of numba's formats; parts of arrays that numba does
# not compile; lines without a reason.
COLOR = re.compile(r"\x1b\[[0-9;]*m")
PLACE = re.compile(r'File "(?P<a>[^"]+)", line (?P<m>\d+)|(?:at|from) (?P<b>\S+) \((?P<n>\d+)\)')
PART = re.compile(r"npytypes\.Array'>, '(\w+)'\)")
NOISE = re.compile(
    r"^(Failed in|During|File |raised from|There (are|is)|- Of|Of which|Overload|With arg|Rejected"
    r"|def |@|<source|\^|>>>|Known sig|No match|\*|Internal error|Name of|Numba type|Enc)"
)

ALLOCATES = (
    "this allocates memory: copy arrays in a loop; a list of constants can be a tuple of the"
    " module, such as MOVES = ((1, 0), (0, 1))"
)

RETURNS = "step must return two values: (reward, terminated)"

# Replacements for numba's internal terms.
PLAINER = (
    (re.compile("NRT required but not enabled"), ALLOCATES),
    (re.compile("(failed to unpack|wrong tuple length).*"), RETURNS),
    (re.compile(r"\bRng\(Record\(.*\) x 1\)"), "rng"),
    (re.compile(r"\bRecord\([^()]*(\([^()]*\)[^()]*)*\)"), "a record"),
    (re.compile(r" (found )?for signature:|Raised from .*"), ""),
)

log = logging.getLogger("agym.vectorize")

T = TypeVar("T")

# Two threads must not make numba dispatchers at the same time.
_lock = threading.Lock()


class Kernels:
    """The compiled loops of a rule book.

    Attributes:
        begin: ``begin_some`` of ``kernels.py``.
        play: ``play_some``.
        show: ``show_some``.
    """

    def __init__(self, book: RuleBook, mark: str | None) -> None:
        """Bind the loops to the rules.

        Args:
            book: The rules.
            mark: The fingerprint of the rules; ``None`` to compile them without the cache.
        """
        numba = require("numba", EXTRA)
        install_rng(book.rng)  # type: ignore[arg-type] # mypy takes classes for unhashable
        self._book = book
        self._mark = mark
        self._announced = False
        compile_one = numba.njit(inline="always", **OPTIONS)
        binder = Binder(book.replaced, lambda function: compile_one(as_python(function)))
        self.begin, self.play, self.show = map(binder.bind, (begin_some, play_some, show_some))

    def compile(self, kernel: Any, arguments: Sequence[Any]) -> None:
        """Compile a kernel for arguments of these types, or load it from the disk.

        Raises:
            UsageError: numba cannot compile the rules; the message names the line.
        """
        numba = require("numba", EXTRA)
        with _lock:
            if self._mark is not None:
                kernel._cache = _disk_cache()(kernel.py_func, self._mark, self._announce)
            try:
                kernel.compile(tuple(map(numba.typeof, arguments)))
            except Exception as error:
                log.debug("numba refused the rules of %s", self._book.name, exc_info=error)
                raise refusal(self._book, error) from None

    def _announce(self) -> None:
        """Log once per rule book that it is being compiled."""
        if not self._announced:
            self._announced = True
            log.warning(
                "compiling the rules of %s, which takes a few seconds; the next time, they are"
                " loaded from %s",
                self._book.name, cache_folder(),
            )  # fmt: skip


# Kernels by the function that made them and by fingerprint, so that rules with a changed constant
# are compiled again.
_kernels: dict[tuple[Any, str], Any] = {}


def mark_of(book: RuleBook) -> str | None:
    """Return the fingerprint of all code that is compiled for a rule book.

    Returns:
        ``None``, after a warning, if the rules use a value that has no fingerprint. Cached machine
        code may then contain an outdated value.
    """
    methods = methods_of(book.rng)
    mark, unreadable = fingerprint(
        begin_some, play_some, show_some, *methods, *book.functions.values(), OPTIONS,
        fingerprint(*CODES)[0],
    )  # fmt: skip
    if not unreadable:
        return mark
    log.warning(
        "the rules of %s are compiled again for each batch, because agym can't detect changes of"
        " %s: use plain functions, numbers, tuples and arrays",
        book.name, ", ".join(unreadable),
    )  # fmt: skip
    return None


def kernels_of(book: RuleBook, make: Callable[[RuleBook, str | None], T]) -> T:
    """Return the kernels of a rule book, which all of its batches in this process share.

    ``make`` compiles them; it gets the fingerprint of the rules, ``None`` without one.
    """
    mark = mark_of(book)
    if mark is None:
        return make(book, None)
    with _lock:
        if (make, mark) not in _kernels:
            _kernels[make, mark] = make(book, mark)
    kernels: T = _kernels[make, mark]
    return kernels


def methods_of(rng: type[Any]) -> list[FunctionType]:
    """Return the methods of a class of random numbers, each after those that it calls."""
    return [
        part
        for name, part in vars(rng).items()
        if isinstance(part, FunctionType) and not name.startswith("_")
    ]


# By the name of a method, the methods of this name of each class of random numbers.
_methods: dict[str, dict[type[Any], FunctionType]] = {}


@cache
def install_rng(rng: type[Any]) -> None:
    """Add the methods of a class of random numbers to numba.

    Methods of the same name have the same parameters in all classes.
    """
    numba, extending = require("numba", EXTRA), require("numba.extending", EXTRA)
    binder = Binder({}, numba.njit(**OPTIONS))
    for method in methods_of(rng):
        name, copied = method.__name__, binder.copy(method)
        if name not in _methods:  # numba has one method of a name for all classes
            _methods[name] = {}
            overload = extending.overload_method(
                numba.types.NamedUniTuple, name, jit_options=OPTIONS
            )
            overload(_resolver(copied, _methods[name]))
        _methods[name][rng] = copied


def _resolver(method: FunctionType, copies: Mapping[type[Any], FunctionType]) -> Callable[..., Any]:
    def resolve(self: Any, *_: Any, **__: Any) -> Any:
        return copies.get(self.instance_class)

    resolve.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    return resolve


@cache
def _disk_cache() -> Any:
    """Return a class of numba caches that use a fingerprint."""
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
        def __init__(self, function: Any, mark: str, on_miss: Any) -> None:
            self._mark, self._on_miss = mark, on_miss
            locator = type("Locator", (Locator,), {"mark": mark})
            self._impl_class = type(
                "Impl", (caching.CompileResultCacheImpl,), {"_locator_classes": [locator]}
            )
            super().__init__(function)

        def _index_key(self, signature: Any, codegen: Any) -> Any:
            return signature, codegen.magic_tuple(), self._mark

        def load_overload(self, signature: Any, context: Any) -> Any:
            code = None
            try:
                code = super().load_overload(signature, context)
            except OSError:
                pass
            except Exception:  # a damaged file: remove it, so that a new one can be written
                with suppress(OSError):
                    self.flush()
            if code is None:
                self._on_miss()
            return code

        def save_overload(self, signature: Any, result: Any) -> None:
            with suppress(OSError):  # without a cache file, it is compiled again the next time
                super().save_overload(signature, result)

    return DiskCache


# ---------------------------------------------------------------- why rules are refused


def refusal(book: RuleBook, error: Exception) -> UsageError:
    """Turn numba's error about rules into a :class:`UsageError`."""
    text = COLOR.sub("", str(error))
    functions = all_functions(book)
    place = _place_named(text, functions) or _place_of_word(text, functions)
    lines = [line.strip(" -") for line in text.splitlines()]
    reason = next((line for line in lines if line and not NOISE.match(line)), text)
    if isinstance(error, KeyError):
        reason = f"there is no field {text}"
    parts = PART.findall(text)
    if parts and reason.startswith("Resolution failure"):
        reason = PARTS.format(name=parts[-1])
    for pattern, plainer in PLAINER:
        reason = pattern.sub(plainer, reason)
    where = ""
    if place is not None:
        file, number = place
        line = linecache.getline(file, number).strip()
        where = f" at {file}:{number}: {line!r}"
        if ":=" in line and "cannot be determined" in reason:
            reason = "numba does not support := here: write the assignment on a separate line"
    return UsageError(
        f"the rules of {book.name} cannot be compiled{where}: {reason[:300].strip(' .:')}. Rules"
        " may use numbers, fixed arrays, math, and constants and functions of their module;"
        " engine='python' supports more"
    )


def all_functions(book: RuleBook) -> list[FunctionType]:
    """Return a rule book's functions, and all functions that they call."""
    functions: list[FunctionType] = []
    todo = list(book.functions.values())
    while todo:
        function = todo.pop()
        if function not in functions:
            functions.append(function)
            named = [function.__globals__[name] for name in global_names(function)]
            cells = [cell.cell_contents for cell in function.__closure__ or ()]
            todo += [f for f in map(function_of, (*named, *cells)) if f is not None]
    return functions


def _place_named(text: str, functions: list[FunctionType]) -> tuple[str, int] | None:
    """Return the last place in the text that is a line of the rules."""
    place = None
    for match in PLACE.finditer(text):
        path, number = match["a"] or match["b"], int(match["m"] or match["n"])
        for function in functions:
            first = function.__code__.co_firstlineno
            last = max((line or first for *_, line in function.__code__.co_lines()), default=first)
            file = function.__code__.co_filename
            if file.endswith(path.lstrip("./")) and first <= number <= last:
                place = file, number
    return place


def _place_of_word(text: str, functions: list[FunctionType]) -> tuple[str, int] | None:
    """Return the first line of the rules that contains a quoted word of the text."""
    for word in re.findall(r"'(\w+)'", text):
        for function in functions:
            try:
                lines, first = inspect.getsourcelines(function)
            except OSError:
                continue
            for number, line in enumerate(lines, first):
                if re.search(rf"\b{word}\b", line):
                    return function.__code__.co_filename, number
    return None
