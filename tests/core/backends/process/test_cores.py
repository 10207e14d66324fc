"""Cores: one thread of native code per worker, and each worker on its core if that is wanted."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import psutil
import pytest
from gymnasium.vector import SyncVectorEnv

import agym
from agym.backends import Process
from agym.core.backends.process.worker_process import THREAD_VARIABLES, thread_caps
from agym.errors import UsageError
from tests.support.backends import FORK
from tests.support.drivers import APIS, opened
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Probe, Result, Tally
from tests.support.insides import backend_of

if sys.platform != "linux":
    pytest.skip("only Linux has cores to choose", allow_module_level=True)

METHODS = ("spawn", "forkserver", "fork")
PINNED = Process(pin=True)


class Multiplies(Tally):
    """Does in each step what starts pools of threads, and tells how many threads there are."""

    def step(self, action: Any) -> Result:
        torch: Any = pytest.importorskip("torch")
        observation, reward, terminated, truncated, info = super().step(action)
        np.ones((600, 600)) @ np.ones((600, 600))
        torch.ones(600, 600) @ torch.ones(600, 600)
        info["threads"] = psutil.Process().num_threads()
        info["torch"] = torch.get_num_threads()
        return observation, reward, terminated, truncated, info


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_matrix_products_in_a_worker_start_no_threads(method: str) -> None:
    pytest.importorskip("torch", reason="the extra `torch`")
    with agym.make(Multiplies, 2, workers=2, backend=Process(start_method=method)) as envs:
        envs.reset()
        for _ in range(2):
            infos = envs.step([0, 0]).infos
            assert [(info["threads"], info["torch"]) for info in infos] == [(1, 1)] * 2


def test_torch_is_capped_in_a_fork_that_has_it_loaded() -> None:
    torch = pytest.importorskip("torch", reason="the extra `torch`")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with agym.make(Multiplies, 2, workers=1, backend=FORK) as envs:
            envs.reset()
            assert [info["torch"] for info in envs.step([0, 0]).infos] == [1, 1]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("method", METHODS)
def test_what_somebody_has_set_stays(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("MKL_NUM_THREADS", "")  # as good as not set
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    with agym.make(Probe, 1, backend=Process(start_method=method)) as envs:
        assert envs.environment("OMP_NUM_THREADS") == ["2"]
        assert envs.environment("MKL_NUM_THREADS") == ["2"]
        assert envs.environment("OPENBLAS_NUM_THREADS") == ["3"]


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


def test_torch_goes_by_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the extra `torch`")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with agym.make(Multiplies, 1, backend="process") as envs:
        envs.reset()
        assert envs.step([0]).infos[0]["torch"] == 2


# ---------------------------------------------------------------- pinning


def cores_of(envs: Any) -> list[list[int]]:
    """The cores on which each environment's process may run, as the system says."""
    return [psutil.Process(pid).cpu_affinity() or [] for pid in envs.call("pid")]


def around(count: int) -> list[list[int]]:
    """The cores of this process, one by one, around and around."""
    cores = sorted(os.sched_getaffinity(0))
    return [[cores[k % len(cores)]] for k in range(count)]


@pytest.fixture
def one_core() -> Iterator[int]:
    """This process may use its last core alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    yield max(before)
    os.sched_setaffinity(0, before)


@pytest.mark.once
@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("method", METHODS)
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


def test_workers_keep_to_the_cores_of_the_caller(one_core: int) -> None:
    with agym.make(Probe, 2, backend=PINNED) as envs:
        assert len(set(envs.pid())) == 1  # as many workers as cores
        assert cores_of(envs) == [[one_core]] * 2


def test_coroutine_environments_are_pinned_too() -> None:
    with agym.make(partial(AsyncTally), 2, workers=2, backend=PINNED) as envs:
        envs.reset()
        pids = [pid for pid in backend_of(envs).pids if pid is not None]
        assert [psutil.Process(pid).cpu_affinity() for pid in pids] == around(2)


@pytest.mark.full
def test_a_worker_that_replaces_another_is_pinned_again() -> None:
    with agym.make(Probe, 2, workers=2, backend=PINNED, on_fault="restart") as envs:
        envs.reset()
        killed = envs.pid()[1]
        os.kill(killed, signal.SIGKILL)
        while "fault" not in envs.step([0, 0]).infos[1]:
            pass
        assert envs.pid()[1] != killed
        assert cores_of(envs) == around(2)


@pytest.mark.full
def test_a_recycled_worker_is_pinned_again() -> None:
    backend = Process(pin=True, recycle=agym.Recycle(episodes=2))
    with agym.make(Probe, 2, workers=2, backend=backend, autoreset="next_step") as envs:
        envs.reset()
        first = envs.pid()
        while set(first) & set(envs.pid()):
            envs.step([0, 0])
        assert cores_of(envs) == around(2)


def test_other_apis_pin() -> None:
    vector = agym.make_vec(Probe, 2, workers=2, backend=PINNED)
    try:
        assert cores_of(vector) == around(2)
    finally:
        vector.close()


@pytest.mark.parametrize("make", [agym.make, agym.make_async, agym.make_vec])
@pytest.mark.parametrize("backend", ["auto", "serial", "thread", "asyncio", "vector"])
def test_what_has_no_worker_processes_cannot_be_pinned(make: Any, backend: str) -> None:
    env: Any = {
        "asyncio": AsyncTally,
        "vector": lambda num_envs: SyncVectorEnv([Tally] * num_envs),
    }.get(backend, Tally)
    message = r"`pin` isn't an agym option; use backend=agym\.backends\.Process\(pin="
    with pytest.raises(UsageError, match=message):
        make(env, 2, backend=backend, pin=True)


def test_systems_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(UsageError, match=r"pin=True needs a system .* such as Linux"):
        Process(pin=True)
