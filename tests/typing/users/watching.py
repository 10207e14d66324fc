"""What is attached: ``with agym.NAME(envs, ...) as thing``."""

from __future__ import annotations

from typing import Any, assert_type

import agym


def attached(envs: agym.Envs, vector: agym.AgymVectorEnv) -> None:
    with agym.record(envs, "run.mp4") as recording:
        assert_type(recording, agym.Recording)
        assert_type(recording.frames, int)
    with agym.watch(vector) as page:
        assert_type(page, agym.Page)
    with agym.trace([envs, vector], "run.json") as trace:
        assert_type(trace, agym.Trace)
    with agym.tensorboard(envs, "runs") as log:
        assert_type(log, agym.Log)
    with agym.chaos(envs[0], error=0.1) as chaos:
        assert_type(chaos, agym.Chaos)
    chaos.close()


async def attached_to_async_environments(envs: agym.AsyncEnvs[Any, Any, Any, Any]) -> None:
    async with agym.watch(envs) as page:
        assert_type(page, agym.AsyncPage)
        await page.wait_for_viewer()
    async with agym.record(envs, "run.mp4") as recording:
        assert_type(recording, agym.Recording)
    async with agym.make_async("CartPole-v1", 2) as others, agym.watch(others) as page:
        assert_type(page, agym.AsyncPage)
    await recording.aclose()


def mistakes(envs: agym.Envs) -> None:
    agym.tensorboard("runs", envs, 10)  # type: ignore[call-arg]
    agym.watch(object())  # type: ignore[call-overload]
    agym.record(envs)  # type: ignore[call-arg]
    agym.record(envs, "run.mp4").step([0, 1])  # type: ignore[attr-defined]
