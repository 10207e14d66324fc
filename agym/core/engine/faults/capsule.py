"""Capsules: everything needed to reproduce one failure of one environment, in a file.

The head of the file (``_system/files.py``) shows the failure. Parts that may not be picklable, or
not readable elsewhere, are pickled separately, so that one failing part does not affect the others.
"""

from __future__ import annotations

import os
import pickle
import platform
import re
import secrets
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agym.core._system.files import os_errors_as_usage_errors, read_pickle, versions, write_pickle
from agym.core._system.pickling import dumps_by_value
from agym.core.protocol.messages.failures import describe_exception
from agym.core.protocol.messages.resets import EpisodeStart
from agym.errors import Fault

# Characters of a value shown in one line.
MAX_SHOWN = 200


@dataclass(frozen=True, eq=False)
class Capsule:
    """One failure of one environment.

    Attributes:
        fault: The fault. Only ``"make"``, ``"reset"``, ``"step"``, ``"render"``, ``"close"``,
            ``"call"``, ``"get_attr"`` and ``"set_attr"`` can be repeated.
        start: The reset that started the episode. If a reset failed and ``actions`` are empty, the
            failed reset.
        autoreset: agym's name of the autoreset mode.
        factory: Makes the environment, without arguments; ``None`` if it could not be pickled or
            read.
        actions: The actions since the reset, without the action of the fault, in the form that
            ``step`` expects. A replay applies the autoreset mode to them again.
        arguments: ``(name, args, kwargs)`` of a call, ``(name,)`` of ``get_attr``, ``(name,
            value)`` of ``set_attr``.
        complete: Whether ``actions`` start at the reset and nothing is missing.
        missing: The parts that the file lacks, and why.
        factory_text: The factory in words, in a capsule from a file.
        versions: The versions of Python and of the packages that wrote it, by name.
    """

    fault: Fault
    start: EpisodeStart
    autoreset: str
    factory: Callable[[], Any] | None = None
    actions: Sequence[Any] = ()
    arguments: tuple[Any, ...] = ()
    complete: bool = True
    missing: tuple[str, ...] = ()
    factory_text: str = ""
    versions: dict[str, str] = field(default_factory=versions)


def write_capsule(directory: str | os.PathLike[str], capsule: Capsule) -> Path:
    """Write a capsule into a folder, which is created if needed. Only the owner may read the file.

    Parts that cannot be pickled are left out and listed in the file.

    Returns:
        The path of the file, which appears atomically.

    Raises:
        UsageError: The file cannot be written.
    """
    fault, start = capsule.fault, capsule.start
    parts: dict[str, bytes] = {}
    missing: list[str] = []
    for name, value in {
        "factory": capsule.factory,
        "rng": start.rng,
        "options": start.options,
        "actions": capsule.actions,
        "action": fault.action,
        "arguments": capsule.arguments,
    }.items():
        try:
            parts[name] = dumps_by_value(value)
        except Exception as error:
            missing.append(f"{name} (can't be pickled: {describe_error(error)})")
    failure = {**vars(fault), "action": shown(fault.action)}
    traceback = failure.pop("traceback")
    head = {
        "fault": failure,
        "factory": describe_factory(capsule.factory),
        "seed": start.seed,
        "options": shown(start.options),
        "actions": len(capsule.actions),
        "autoreset": capsule.autoreset,
        "complete": capsule.complete and not missing,
        "missing": missing,
        "versions": capsule.versions,
        "sys_path": _import_folders(),
        "traceback": traceback,  # last, because it is long
    }
    folder = Path(directory)
    with os_errors_as_usage_errors(f"{folder} cannot be created"):
        folder.mkdir(parents=True, exist_ok=True)
    operation = re.sub(r"\W+", "-", fault.operation)
    when = f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(4)}"
    path = folder / f"env{fault.env_id}-{operation}-{when}.agym"
    write_pickle("capsule", path, parts, head)
    return path


def read_capsule(path: str | os.PathLike[str]) -> Capsule:
    """Read a capsule. **Only open capsules that you trust:** unpickling one runs code from it.

    The folders from which the writer imported modules are appended to ``sys.path``.

    Raises:
        UsageError: The file cannot be read, is damaged, is not a capsule, or was written by a newer
            agym.
    """
    parts, head = read_pickle("capsule", path)
    sys.path.extend(folder for folder in head["sys_path"] if folder not in sys.path)
    values: dict[str, Any] = {}
    missing = head["missing"]
    for name, part in parts.items():
        try:
            values[name] = _load(part, head["versions"]["python"])
        except Exception as error:
            missing.append(f"{name} (cannot be read here: {describe_error(error)})")
    failure = {**head["fault"], "action": values.pop("action", None)}
    return Capsule(
        Fault(**failure, traceback=head["traceback"]),
        EpisodeStart(head["seed"], values.pop("rng", None), values.pop("options", None)),
        head["autoreset"],
        complete=head["complete"] and not missing,
        missing=tuple(missing),
        factory_text=head["factory"],
        versions=head["versions"],
        **values,
    )


def _load(part: bytes, python_version: str) -> Any:
    here, wrote = (v.split(".")[:2] for v in (platform.python_version(), python_version))
    if wrote != here and b"cloudpickle" in part:
        raise ValueError(f"it contains code that needs Python {'.'.join(wrote)}")
    return pickle.loads(part)


def _import_folders() -> list[str]:
    """Return the folders of ``sys.path`` with the user's own modules, not installed packages."""
    paths = sysconfig.get_paths()
    installed = tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    folders = [os.path.abspath(folder) for folder in sys.path]  # noqa: PTH100 - "" is the cwd
    return [each for each in folders if Path(each).is_dir() and not each.startswith(installed)]


def describe_factory(factory: Any) -> str:
    """Describe a factory in one line, like the call that a user would write."""
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    if isinstance(factory, partial):  # Python flattens a partial of a partial
        factory, arguments, keywords = factory.func, factory.args, factory.keywords
    given = [shown(each.id if isinstance(each, EnvSpec) else each) for each in arguments]
    given += [f"{name}={shown(value)}" for name, value in keywords.items()]
    if factory is gymnasium.make:
        name = "gymnasium.make"
    elif hasattr(factory, "__qualname__"):
        name = f"{getattr(factory, '__module__', None)}.{factory.__qualname__}"
    else:
        name = shown(factory)
    return f"{name}({', '.join(given)})"


def shown(value: Any) -> str:
    """Format a value in one line of limited length, even if its ``repr`` raises."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def describe_error(error: BaseException) -> str:
    """Format an exception in one line, even if its ``str`` raises."""
    return " ".join(describe_exception(error).split())
