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
    import logging, os, signal, sys, warnings
    from pathlib import Path
    import gymnasium
    import numpy as np
    import agym

    class Large(gymnasium.Env):
        render_mode = "rgb_array"
        action_space = gymnasium.spaces.Discrete(3)
        observation_space = gymnasium.spaces.Box(0, 255, (100, 100, 3), np.uint8)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.render(), {}

        def step(self, action):
            if action == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return self.render(), 1.0, False, False, {"text": "a" * 300_000}

        def render(self):
            return self.np_random.integers(0, 255, (100, 100, 3), np.uint8)

        def pid(self):
            assert sys.platform == "darwin" and not hasattr(os, "memfd_create")
            return os.getpid()

        def inherited(self):
            links = {link: str(link.readlink()) for link in [*Path("/proc/self/fd").iterdir()]
                     if link.is_symlink()}
            files = [int(link.name) for link, file in links.items() if "(deleted)" in file]
            assert len(files) >= 2
            return [file for file in files if os.get_inheritable(file)]

    def shared(pid):
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        return {line[line.index("/") :] for line in maps if " rw-s " in line and "/" in line}

    def play(envs, first):
        results = [first, *envs.step([0] * 4), *envs.step([1] * 4), np.array(envs.render())]
        return [np.asarray(each).tolist() for each in results if not isinstance(each[0], dict)]

    warnings.simplefilter("ignore")  # of the worker that is replaced
    logging.getLogger("agym").setLevel("ERROR")
    with agym.make(Large, 4, backend="serial") as envs:
        expected = play(envs, envs.reset(seed=3)[0])
    backend = agym.backends.Process(workers=2, start_method={method!r})
    with agym.make(Large, 4, backend=backend, on_fault="restart") as envs:
        assert play(envs, envs.reset(seed=3)[0]) == expected
        pids = set(envs.call("pid"))
        assert len(pids) == 2 and os.getpid() not in pids
        for pid in (os.getpid(), *pids):
            assert any(file.startswith("/dev/shm/agym-") for file in shared(pid)), shared(pid)
            assert all(file.endswith(" (deleted)") for file in shared(pid)), shared(pid)
        assert envs.call("inherited") == [[]] * 4
        assert "fault" in envs.step([2, 0, 0, 0])[4][0]
        assert set(envs.call("pid")) != pids
        envs.reset()
        envs.step([1] * 4)
    with agym.make(Large, 2, backend=backend) as envs:
        envs.reset()
        os.kill(os.getpid(), signal.SIGKILL)  # nothing goes on then
"""


@pytest.mark.full
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_worker_processes(tmp_path: Path, method: str) -> None:
    code = PROCESSES.replace("{method!r}", repr(method))
    script(tmp_path, "darwin", code, exitcode=-9)


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
             "backends/process/test_cores.py", "engine/faults/test_side_effects.py"]
    expression = "memory or descriptor or constructed_once or dies or affinity or returns_to"
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-m", "core", "-k", expression,
                          "--rootdir={root}", *(f"{root}/tests/core/{file}" for file in files)]))
"""


@pytest.mark.full
def test_these_tests_run_there(tmp_path: Path) -> None:
    """Without ``/proc``, ``/dev/shm`` and affinities, tests that need these are skipped."""
    out = script(tmp_path, "darwin", TESTS.replace("{root}", str(ROOT)), "trio")
    assert re.search(r"^\d+ passed, \d+ skipped, \d+ deselected", out, re.MULTILINE), out
