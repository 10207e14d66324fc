"""Other systems: hides from a process what Windows or macOS lack of Python's standard library.

What they lack is what typeshed says, which mypy brings. A script looks like one on Windows from its
first line on, and one on macOS with all that it starts::

    script(folder, "win32", "import agym ...")

Modules that were imported before, such as the libraries below, work as on Linux: not all of them
find names only when they are imported.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import multiprocessing
import os
import selectors
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from platform import uname
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

from tests.support.scripts import ROOT, run

MODULES = (
    "fcntl", "grp", "mmap", "os", "pwd", "resource", "select", "signal", "socket", "termios",
    "time",
)  # fmt: skip

LIBRARIES = (
    "aiomultiprocess", "click", "cloudpickle", "ctypes.util", "gymnasium.vector",
    "multiprocessing.forkserver", "multiprocessing.popen_spawn_posix", "numpy.random", "psutil",
    "rich.live", "rich.progress", "typer.testing", "websockets.asyncio.client",
)  # fmt: skip

# Python runs this first of all, in each process that a script starts, but not in the one that
# multiprocessing has for semaphores.
EACH_PROCESS = """
    import sys
    if "resource_tracker" not in " ".join(sys.orig_argv):
        from tests.support.platforms import hide
        hide({platform!r}, *{libraries})
"""


def script(folder: Path, platform: str, code: str, *libraries: str, exitcode: int = 0) -> str:
    """Run a script, which has to end so, without a word on its errors; return its output.

    Args:
        folder: Where it runs.
        platform: The system that it shall find.
        code: The script.
        libraries: What it imports that has to be imported before.
        exitcode: The exit code.
    """
    first = dedent(EACH_PROCESS).format(platform=platform, libraries=libraries)
    (folder / "sitecustomize.py").write_text(first)
    ended, out, err = run(folder, code, 20, path=(ROOT, folder))
    assert (ended, err) == (exitcode, ""), out + err
    return out


def hide(platform: str, *libraries: str) -> None:
    """Let this process look like one on another system, as far as agym can tell."""
    assert "agym" not in sys.modules
    for library in (*LIBRARIES, *libraries):
        if importlib.util.find_spec(library.partition(".")[0]) is not None:
            importlib.import_module(library)
    for name in MODULES:
        there, here = (set(_names(name, system)) for system in (platform, "linux"))
        module = importlib.import_module(name)
        for missing in (here - there) & vars(module).keys():
            delattr(module, missing)
        if not there:
            sys.modules[name] = None  # type: ignore[assignment]
    vars(os)["process_cpu_count"] = os.cpu_count  # as Python has it where there are no affinities
    sysconfig.get_config_vars()  # whose file has a name by the platform
    asyncio.set_event_loop(None)  # imports a module by the platform
    uname()  # whose answer is kept, and on Windows takes a subprocess
    sys.platform = platform
    tempfile._O_TMPFILE_WORKS = False  # type: ignore[attr-defined]
    if platform == "win32":
        selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc, assignment]
        sys.modules["uvloop"] = None  # type: ignore[assignment]
        vars(socket)["socketpair"] = _socketpair
        asyncio.new_event_loop = asyncio.events.new_event_loop = Proactor
        start_methods: Any = multiprocessing.context
        for name in ("fork", "forkserver"):
            start_methods._concrete_contexts.pop(name)
        spawn = start_methods._concrete_contexts["spawn"]
        start_methods._default_context._default_context = spawn
        assert multiprocessing.get_all_start_methods() == ["spawn"]
    else:
        selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc, assignment]


def _not_implemented(name: str) -> Any:
    """A method that only asyncio itself may call."""
    method = getattr(asyncio.SelectorEventLoop, name)

    def call(loop: asyncio.AbstractEventLoop, *arguments: Any) -> Any:
        if not sys._getframe(1).f_globals["__name__"].startswith("asyncio."):
            raise NotImplementedError
        return method(loop, *arguments)

    return call


class Proactor(asyncio.SelectorEventLoop):
    """An event loop that watches no descriptors, as asyncio's default loop on Windows."""

    add_reader, remove_reader = _not_implemented("add_reader"), _not_implemented("remove_reader")
    add_writer, remove_writer = _not_implemented("add_writer"), _not_implemented("remove_writer")
    add_signal_handler = _not_implemented("add_signal_handler")


def _socketpair(*_: Any) -> tuple[socket.socket, socket.socket]:
    """A pair as on Windows, whose sockets have no pairs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        return ours, server.accept()[0]


def _names(module: str, platform: str) -> Iterator[str]:
    """What a module defines on a system for its users."""
    (package,) = importlib.util.find_spec("mypy").submodule_search_locations  # type: ignore[union-attr, misc]
    stubs = Path(package, "typeshed", "stdlib")
    paths = [stubs / f"{module}.pyi", stubs / module / "__init__.pyi"]
    stub = next(path for path in paths if path.exists())
    defined = _defined(ast.parse(stub.read_text()).body, platform)
    return (name for name in defined if not name.startswith("_"))


def _defined(body: list[ast.stmt], platform: str) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.If(test, then, otherwise):
                yield from _defined(then if _holds(test, platform) else otherwise, platform)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(name)):
                yield name
            case ast.Assign(targets=[ast.Name(name)]):
                yield name
            case ast.ImportFrom(names=aliases):
                yield from (alias.asname for alias in aliases if alias.asname)


def _holds(test: ast.expr, platform: str) -> bool:
    """Whether a condition of a stub holds, such as ``sys.platform != "win32"``."""
    system = SimpleNamespace(platform=platform, version_info=sys.version_info)
    return bool(eval(compile(ast.Expression(test), "stub", "eval"), {"sys": system}))
