"""On macOS worker processes run with what macOS has in place of Linux's functions.

That shared memory is neither read, written nor resized there is left to macOS to find.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from agym.core.backends.process.channel import LARGE_BYTES, Channel
from tests.support.platforms import script
from tests.support.scripts import ROOT

PROCESSES = """
    import logging, os, signal, sys
    from pathlib import Path
    import agym
    from agym.testing import LAWS, World
    from tests.support.envs.plain_envs import Probe

    class Mapped(Probe):
        def inherited(self):
            assert sys.platform == "darwin" and not hasattr(os, "memfd_create")
            links = {link: str(link.readlink()) for link in [*Path("/proc/self/fd").iterdir()]
                     if link.is_symlink()}
            files = [int(link.name) for link, file in links.items() if "(deleted)" in file]
            assert len(files) >= 2
            return [file for file in files if os.get_inheritable(file)]

    logging.getLogger("agym").setLevel("ERROR")
    backend = agym.backends.Process(start_method=METHOD)
    for name in ("a_run_equals_that_of_serial", "deaths_of_all_workers_are_one_group",
                 "a_replaced_environment_goes_on"):
        LAWS[name].check(World(backend, "sync", "next_step", workers=2))
    with agym.make(Mapped, 2, backend=backend, workers=2) as envs:
        envs.reset()
        for lines in (Path("/proc/self/maps").read_text(), *envs.maps()):
            shared = {line[line.index("/") :] for line in lines.splitlines()
                      if " rw-s " in line and "/" in line}
            assert any(file.startswith("/dev/shm/agym-") for file in shared), shared
            assert all(file.endswith(" (deleted)") for file in shared), shared
        assert envs.inherited() == [[], []]
        assert envs.echo("a" * 300_000) == ["a" * 300_000] * 2
        os.kill(os.getpid(), signal.SIGKILL)  # nothing goes on then
"""


@pytest.mark.full
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_worker_processes(tmp_path: Path, method: str) -> None:
    code = PROCESSES.replace("METHOD", repr(method))
    script(tmp_path, "darwin", code, "hypothesis", "pytest", exitcode=-9)


def test_a_frame_fits_into_the_buffers_of_sockets_that_are_small() -> None:
    ends = socket.socketpair()
    for end in ends:
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, buffer, 8192)
    ours, theirs = map(Channel, ends)
    try:
        ours.send([os.urandom(LARGE_BYTES)])
        assert not ours.backlog
    finally:
        ours.close()
        theirs.close()


TESTS = """
    import os
    import sys
    from pathlib import Path
    import pytest

    def hidden(name):
        method = getattr(Path, name)

        def call(path, *arguments, **keywords):
            if path.parts[1:2] == ("proc",) or path.parts[1:3] == ("dev", "shm"):
                raise FileNotFoundError(2, "No such file or directory", str(path))
            return method(path, *arguments, **keywords)

        setattr(Path, name, call)

    for name in ("stat", "open", "iterdir", "readlink"):
        hidden(name)
    os.environ.pop("AGYM_NO_SKIPS", None)  # what is skipped here runs on Linux
    files = ["protocol/test_memory.py", "backends/process/test_process.py", "_system/test_cpus.py",
             "backends/process/test_cores.py"]
    expression = "memory or constructed_once or affinity"
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-m", "core", "-k", expression,
                          "--rootdir={root}", *(f"{root}/tests/core/{file}" for file in files)]))
"""


@pytest.mark.full
def test_these_tests_run_there(tmp_path: Path) -> None:
    """Without ``/proc``, ``/dev/shm`` and affinities, tests that need these are skipped."""
    out = script(tmp_path, "darwin", TESTS.replace("{root}", str(ROOT)), "trio")
    assert re.search(r"^\d+ passed, \d+ skipped, \d+ deselected", out, re.MULTILINE), out
