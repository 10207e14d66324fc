"""The error for rules that numba cannot compile: one sentence, with the line of the rules."""

from __future__ import annotations

import inspect
import linecache
import re
from types import FunctionType

from agym.envs.rules.binding import global_names
from agym.envs.rules.contract import RuleBook
from agym.errors import UsageError

# Colours; places, in the forms in which numba names them; lines that give no reason.
COLOR = re.compile(r"\x1b\[[0-9;]*m")
PLACE = re.compile(r'File "(?P<a>[^"]+)", line (?P<m>\d+)|(?:at|from) (?P<b>\S+) \((?P<n>\d+)\)')
NOISE = re.compile(
    r"^(Failed in|During|File |raised from|There (are|is)|- Of|Of which|Overload|With arg|Rejected"
    r"|def |@|<source|\^|>>>|Known sig|No match|\*|Internal error|Name of|Numba type|Enc)"
)

# What numba says of its own parts, in other words.
PLAINER = (
    (re.compile("NRT required but not enabled"), "this allocates memory, which a step cannot"),
    (re.compile("failed to unpack.*"), "step must return two values: (reward, terminated)"),
    (re.compile(r"\bRng\(Record\(.*\) x 1\)"), "rng"),
    (re.compile(r"\bRecord\([^()]*(\([^()]*\)[^()]*)*\)"), "a record"),
    (re.compile(r" (found )?for signature:|Raised from .*"), ""),
)


def refusal(book: RuleBook, error: Exception) -> UsageError:
    """Return the error for rules that numba refuses with an error of its own."""
    text = COLOR.sub("", str(error))
    functions = all_functions(book)
    place = _place_named(text, functions) or _place_of_word(text, functions)
    lines = [line.strip(" -") for line in text.splitlines()]
    reason = next((line for line in lines if line and not NOISE.match(line)), text)
    if isinstance(error, KeyError):
        reason = f"there is no field {text}"
    for pattern, plainer in PLAINER:
        reason = pattern.sub(plainer, reason)
    where = ""
    if place is not None:
        file, number = place
        where = f" at {file}:{number}: {linecache.getline(file, number).strip()!r}"
    return UsageError(
        f"the rules of {book.name} cannot be compiled{where}: {reason[:300].strip(' .:')}. Rules"
        " may use numbers, fixed arrays, math and functions of their module; engine='python' runs"
        " any"
    )


def all_functions(book: RuleBook) -> list[FunctionType]:
    """Return a rule book's functions, and those that they call."""
    found: list[FunctionType] = []
    todo = list(book.functions.values())
    while todo:
        function = todo.pop()
        if function not in found:
            found.append(function)
            named = [function.__globals__[name] for name in global_names(function)]
            cells = [cell.cell_contents for cell in function.__closure__ or ()]
            todo += [one for one in (*named, *cells) if isinstance(one, FunctionType)]
    return found


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
    """Return the line of the rules with a word that the text quotes."""
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
