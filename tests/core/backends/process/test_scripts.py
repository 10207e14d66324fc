"""Scripts with worker processes: a system that lacks what they need, and signals at any moment.

How scripts end is in ``core/engine/faults/test_script_ends.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scripts import run

SCARCE = """
    import os, resource
    import agym

    limit = {limit}
    resource.setrlimit(resource.{name}, (limit, limit))
    try:
        agym.make("CartPole-v1", 4, backend="process", workers=2)
    except agym.UsageError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("name", "limit", "remedy"),
    [
        ("RLIMIT_NOFILE", 'len(os.listdir("/proc/self/fd")) + 6', "ulimit -n 4096"),
        ("RLIMIT_FSIZE", "1000", "ulimit -f unlimited"),
    ],
)
def test_what_the_system_lacks_is_said_with_the_remedy(
    name: str, limit: str, remedy: str, tmp_path: Path
) -> None:
    code, out, _ = run(tmp_path, SCARCE.format(name=name, limit=limit))
    assert code == 0
    assert out.startswith("the environments cannot be made: ")
    assert remedy in out
    assert out.count("\n") == 1


INTERRUPTED = """
    import os, random, signal, threading
    from functools import partial
    import agym
    from tests.support.envs.plain_envs import Tally

    def interrupt():
        os.kill(os.getpid(), signal.{signal})

    signal.signal(signal.{signal}, signal.default_int_handler)
    with agym.make(partial(Tally, length=10**9), 4, backend="process", workers=2) as envs:
        for _ in range(300):
            envs.reset()
            k = 0
            try:
                threading.Timer(random.uniform(0, 0.004), interrupt).start()
                while True:
                    result = envs.step([k % 9] * 4)
                    k += 1
            except KeyboardInterrupt:
                pass
            if k:
                assert [o[1] for o in result.observations] == [k] * 4
                assert [o[2] for o in result.observations] == [(k - 1) % 9] * 4
    print("fine")
"""


@pytest.mark.full
@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM", "SIGALRM"])
def test_signals_at_any_moment_do_no_harm(signal: str, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, INTERRUPTED.format(signal=signal))
    assert (code, out, err) == (0, "fine\n", "")
