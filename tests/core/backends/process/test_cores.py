"""Cores: one thread of native code per worker, and each worker on its core if that is wanted."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from typing import Any

import psutil
import pytest

import agym
from agym.backends import Process
from agym.core.backends.process.worker_process import THREAD_VARIABLES, thread_caps
from agym.errors import UsageError
from agym.testing import World
from tests.support.drivers import APIS, opened
from tests.support.envs.plain_envs import Probe, Result

if sys.platform != "linux":
    pytest.skip("only Linux has cores to choose", allow_module_level=True)

each_method = pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
PINNED = Process(pin=True)


class Multiplies(Probe):
    """Does in each step what starts pools of threads, and tells how many threads there are."""

    def step(self, action: Any) -> Result:
        torch: Any = pytest.importorskip("torch")
        observation, reward, terminated, truncated, info = super().step(action)
        torch.ones(600, 600) @ torch.ones(600, 600)
        info |= {"threads": self.native_threads(), "torch": torch.get_num_threads()}
        return observation, reward, terminated, truncated, info


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.once
@pytest.mark.usefixtures("fork_server")
@each_method
def test_a_worker_computes_in_one_thread(method: str) -> None:
    """And the caller in as many as before."""
    torch = pytest.importorskip("torch", reason="the extra `torch`")
    variables, before = dict(os.environ), torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with agym.make(Multiplies, 2, workers=2, backend=Process(start_method=method)) as envs:
            for name in THREAD_VARIABLES:
                assert envs.environment(name) == ["1", "1"]
            envs.reset()
            for _ in range(2):
                infos = envs.step([0, 0]).infos
                assert [info["torch"] for info in infos] == [1, 1]
                if method != "fork":  # a fork has NumPy's pool of the caller
                    assert [info["threads"] for info in infos] == [1, 1]
        assert (dict(os.environ), torch.get_num_threads()) == (variables, 3)
    finally:
        torch.set_num_threads(before)


@pytest.mark.once
@pytest.mark.usefixtures("fork_server")
@each_method
def test_what_somebody_has_set_stays(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("MKL_NUM_THREADS", "")  # as good as not set
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    with agym.make(Multiplies, 1, backend=Process(start_method=method)) as envs:
        assert envs.environment("OMP_NUM_THREADS") == ["2"]
        assert envs.environment("MKL_NUM_THREADS") == ["2"]
        assert envs.environment("OPENBLAS_NUM_THREADS") == ["3"]
        if method != "fork" and importlib.util.find_spec("torch"):  # a fork has the caller's torch
            envs.reset()
            assert envs.step([0]).infos[0]["torch"] == 2


@pytest.mark.parametrize(
    ("given", "general", "others"), [(None, "1", "1"), ("4", "4", "4"), ("4,2", "4,2", "4")]
)
def test_the_general_setting_is_for_all(
    given: str | None, general: str, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    caps = thread_caps()
    assert list(caps) == list(THREAD_VARIABLES)
    assert caps.pop("OMP_NUM_THREADS") == general
    assert set(caps.values()) == {others}


# ---------------------------------------------------------------- pinning


def cores_of(envs: Any) -> list[list[int]]:
    """The cores on which each environment's process may run, as the system says."""
    return [psutil.Process(pid).cpu_affinity() or [] for pid in envs.call("pid")]


def around(count: int) -> list[list[int]]:
    """The cores of this process, one by one, around and around."""
    cores = sorted(os.sched_getaffinity(0))
    return [[cores[k % len(cores)]] for k in range(count)]


@pytest.mark.once
@pytest.mark.usefixtures("fork_server")
@each_method
@pytest.mark.parametrize("api", APIS)
def test_each_worker_on_its_core(api: str, method: str) -> None:
    before = os.sched_getaffinity(0)
    workers = len(before) + 1
    backend = Process(start_method=method, pin=True)
    with opened(api, Probe, workers, backend=backend, workers=workers) as envs:
        assert cores_of(envs) == around(workers)
        envs.reset()
        for _ in range(2):  # a worker that had nothing to do for a while stays where it is
            envs.step([0] * workers)
            time.sleep(0.03)
        assert cores_of(envs) == around(workers)
        assert os.sched_getaffinity(0) == before


def test_without_it_each_worker_may_use_all_cores() -> None:
    with agym.make(Probe, 2, workers=2, backend="process") as envs:
        assert cores_of(envs) == [sorted(os.sched_getaffinity(0))] * 2


def test_workers_keep_to_the_cores_of_the_caller() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        with agym.make(Probe, 2, backend=PINNED) as envs:
            assert len(set(envs.pid())) == 1  # as many workers as cores
            assert cores_of(envs) == [[max(before)]] * 2
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.full
def test_workers_of_coroutine_environments_are_pinned() -> None:
    with World(PINNED, kind="coroutine", workers=2).open(2) as envs:
        assert cores_of(envs) == around(2)


@pytest.mark.full
@pytest.mark.parametrize("why", ["killed", "recycled"])
def test_a_worker_that_replaces_another_is_pinned(why: str) -> None:
    recycle = agym.Recycle(episodes=2) if why == "recycled" else None
    options: Any = {"autoreset": "next_step", "on_fault": "restart", "workers": 2}
    with agym.make(Probe, 2, backend=Process(pin=True, recycle=recycle), **options) as envs:
        envs.reset()
        first = envs.pid()
        if why == "killed":
            os.kill(first[1], signal.SIGKILL)
        while {w.pid for w in envs.stats().workers} & {first[1]}:
            envs.step([0, 0])
        assert cores_of(envs) == around(2)


def test_systems_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(UsageError, match=r"pin=True needs a system .* such as Linux"):
        Process(pin=True)
