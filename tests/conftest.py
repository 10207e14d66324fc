"""What every test stands on: two kinds of event loop, and nothing that outlives a test."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import psutil
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from agym.testing import Script
from tests.support.patience import patience

# Before anything imports pygame, here or in a worker.
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What agym remembers of environments is remembered for the tests alone."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

# Under nohup, workers that lose their caller are right to end without closing their environments.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
# In a shell's background Ctrl-C is ignored, by the programs that tests start too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Our semaphores and our children's get names of their own, to tell them from other programs', and
# from those of other runs of the tests.
SEMAPHORES = f"agym-tests-{os.getpid()}"
multiprocessing.current_process()._config["semprefix"] = f"/{SEMAPHORES}"  # type: ignore[attr-defined]

pytest_plugins = [
    "tests.support.guardian",
    "tests.support.leftovers",
    "tests.support.limits",
    "tests.support.core_selection",
    "tests.support.skips",
]

FAILED = pytest.StashKey[bool]()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run each async test on both loops."""
    return LOOPS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@dataclass(frozen=True)
class Holdings:
    """What this process holds, and all processes: a test must leave no more than it found."""

    processes: frozenset[int]
    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[int, str]]
    shared_memory: frozenset[str]

    @classmethod
    def now(cls) -> Holdings:
        return cls(
            frozenset(psutil.pids()),
            frozenset(threading.enumerate()),
            frozenset(_descriptors()),
            frozenset(
                path.name
                for path in Path("/dev/shm").glob("*")  # Linux alone lists shared memory
                if not path.name.startswith("sem.") or path.name.startswith(f"sem.{SEMAPHORES}-")
            ),
        )

    def beyond(self, earlier: Holdings) -> dict[str, list[object]]:
        """What is held now and was not then, multiprocessing's own helpers left out."""
        helpers = {_resource_tracker_pid(), forkserver._forkserver._forkserver_pid}
        left: dict[str, list[object]] = {
            "children": [*_ours(self.processes - earlier.processes - helpers)],
            "threads": [*self.threads - earlier.threads],
            "descriptors": sorted(self.descriptors - earlier.descriptors),
            "shared_memory": _without_owner(self.shared_memory - earlier.shared_memory),
        }
        return {kind: things for kind, things in left.items() if things}


def _ours(pids: Iterable[int]) -> Iterator[psutil.Process]:
    """Those that descend from this process."""
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if os.getpid() in {parent.pid for parent in process.parents()}:
                yield process


def _descriptors() -> Iterator[tuple[int, str]]:
    for path in [*Path("/dev/fd").iterdir()]:
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            is_link = path.is_symlink()  # not on macOS
            yield int(path.name), str(path.readlink() if is_link else path.stat().st_ino)


def _without_owner(names: frozenset[str]) -> list[object]:
    """Leave out segments that other programs on this machine are using at this moment."""
    if not names:
        return []
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    used = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if int(maps.parent.name) not in ours:
                used |= {name for name in names if f"/dev/shm/{name}" in maps.read_text()}
    return sorted(name for name in names - used if Path("/dev/shm", name).exists())


def _resource_tracker_pid() -> int | None:
    pid: int | None = resource_tracker._resource_tracker._pid
    return pid


@pytest.fixture(scope="session")
def once_opened() -> None:
    """Open what stays open for good after its first use, so that no test is blamed for it."""
    resource_tracker.ensure_running()
    for factory in LOOPS.values():
        factory().close()  # libuv keeps a pipe for signals
    ctypes.CFUNCTYPE(None)(bool)  # libffi may keep a file for the machine code of callbacks
    # Hypothesis makes a generator of random numbers for its first test. After `gc.freeze` it would
    # not find who refers to it, and warn, as it does in CI, where its tests are derandomized.
    given(st.none())(lambda _: None)()


@pytest.fixture(scope="session")
def fork_server(once_opened: None) -> None:
    """Start multiprocessing's fork server, which stays for good."""
    forkserver.ensure_running()


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of its own: MuJoCo logs its warnings in the current one."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """A script for environments of :mod:`agym.testing`."""
    script = Script(str(tmp_path))
    yield script
    script.open_all()  # a thread that waits at a gate would disturb the tests after this one


@pytest.fixture(autouse=True)
def nothing_outlives(request: pytest.FixtureRequest, once_opened: None) -> Iterator[None]:
    """No child process, thread, file descriptor or shared-memory segment outlives a test."""
    if "fork_server" in request.fixturenames:
        request.getfixturevalue("fork_server")
    gc.collect()
    gc.freeze()  # what is left stays: the collector need not look through it in every test
    before = Holdings.now()
    yield
    gc.collect()
    left = Holdings.now().beyond(before)
    if request.node.stash.get(FAILED, False):
        # Its traceback keeps much alive; only see to it that no process goes on.
        for process in left.get("children", []):
            assert isinstance(process, psutil.Process)
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return
    for thread in left.get("threads", []):
        assert isinstance(thread, threading.Thread)
        thread.join(patience())  # rich tells its thread to end, and does not wait for it
    left = Holdings.now().beyond(before) if "threads" in left else left
    assert not left, f"left behind by the test: {left}"
