"""TorchRL's mock benchmark of collectors, and the same environments with agym.

TorchRL's part is ``benchmarks/bench_collectors.py`` of the released package: its environment,
policy and collectors, with the arguments of its command.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

import agym
from agym.core._system.extras import how_to_get, installed, require
from benchmarks.measuring.event_loop import new_runner

SHAPE = (3, 84, 84)
ACTIONS = 6
STEP_SECONDS = 0.001
EPISODE = 200

# How many steps of each environment make a batch; one batch is the warm-up.
BATCH = 16


def load_peer() -> ModuleType | str:
    """Return TorchRL's benchmark, or the reason why it is not available."""
    if not installed("torchrl"):
        return how_to_get("torchrl", "torchrl")
    package = Path(str(require("torchrl", "torchrl").__file__)).parents[1]
    folder = package / "benchmarks"
    if not (folder / "bench_collectors.py").exists():
        return "this release of torchrl doesn't contain its benchmark of collectors"
    sys.path.append(str(folder))  # its processes import it by the same name
    return importlib.import_module("bench_collectors")


class MockPixels(gymnasium.Env[Any, Any]):
    """Like TorchRL's mock environment: returns random pixels after a millisecond of sleep."""

    observation_space = spaces.Box(0, 255, SHAPE, np.uint8)
    action_space = spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)

    def __init__(self) -> None:
        self._torch = require("torch", "torch")
        self._steps = 0

    def _pixels(self) -> Any:
        return self._torch.randint(0, 256, SHAPE, dtype=self._torch.uint8).numpy()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        return self._pixels(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(STEP_SECONDS)
        self._steps += 1
        reward = float(self._torch.randn(1))
        return self._pixels(), reward, self._steps >= EPISODE, False, {}


def agym_frames(
    peer: Any, num_envs: int, frames: int, *, backend: Literal["thread", "process"]
) -> float:
    """Return frames per second of ``agym.rollout`` with a batched policy."""
    torch = require("torch", "torch")
    module = peer.PolicyFactory()().module

    def act(observations: Any) -> Any:
        with torch.inference_mode():
            return module(torch.from_numpy(observations)).numpy()

    async def play() -> float:
        envs = agym.make_async(
            MockPixels, num_envs, backend=backend, autoreset="same_step", infos="none"
        )
        async with envs, agym.batched(act, num_envs, max_wait=0.001) as policy:
            started, count = 0.0, -1
            async for rollout in agym.rollout(envs, policy, BATCH, seed=0):
                if count < 0:
                    started, count = time.perf_counter(), 0  # that was the warm-up
                else:
                    count += rollout.rewards.size
                if count >= num_envs * frames:
                    break
            return count / (time.perf_counter() - started)

    with new_runner() as runner:
        return runner.run(play())


def torchrl_frames(peer: Any, num_envs: int, frames: int, *, kind: str) -> float:
    """Return frames per second of TorchRL's collector, as it measures them."""
    make_env, policy = peer.EnvFactory(from_pixels=True), peer.PolicyFactory()
    common: dict[str, Any] = {
        "create_env_fn": [make_env] * num_envs,
        "frames_per_batch": BATCH * num_envs,
        "total_frames": -1,
        "device_config": peer.InferenceDeviceConfig(policy_device="cpu", output_device="cpu"),
    }
    server = partial(
        peer.InferenceServerConfig, max_batch_size=num_envs, min_batch_size=1, timeout=0.001
    )
    if kind == "threads":
        collector = partial(
            peer.AsyncBatchedCollector, policy=policy(), env_backend="threading",
            server_config=server(service_backend="thread"), **common,
        )  # fmt: skip
    elif kind == "processes":
        collector = partial(
            peer.AsyncBatchedCollector, policy=policy(), env_backend="multiprocessing",
            env_exchange="shm", server_config=server(service_backend="thread"), **common,
        )  # fmt: skip
    else:
        collector = partial(
            peer.AsyncBatchedCollector, policy_factory=policy, env_backend="multiprocessing",
            transport=peer._make_process_slot_transport(make_env, num_envs),
            server_config=server(service_backend="process"), **common,
        )  # fmt: skip
    result = peer.bench(
        name=kind, backend=kind, batch_rule="auto", factory=collector, env_name="fake-pixels",
        num_envs=num_envs, frames_per_batch=BATCH * num_envs, total_frames=num_envs * frames,
        policy_device="cpu", output_device="cpu", env_step_latency_ms=1e3 * STEP_SECONDS,
        policy_delay_ms=0.0, warmup_batches=1,
    )  # fmt: skip
    if result.status != "ok":
        raise RuntimeError(f"{kind}: {result.failure}")
    return float(result.frames_per_s)


SYSTEMS: Mapping[str, Callable[[Any, int, int], float]] = {
    "agym": partial(agym_frames, backend="thread"),
    "agym, process": partial(agym_frames, backend="process"),
    "AsyncBatchedCollector, threads": partial(torchrl_frames, kind="threads"),
    "AsyncBatchedCollector, processes": partial(torchrl_frames, kind="processes"),
    "AsyncBatchedCollector, process slots": partial(torchrl_frames, kind="process slots"),
}
