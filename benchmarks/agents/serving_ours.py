"""agym's server in a process of its own: ``python -m benchmarks.agents.serving_ours echo 64``."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from agym.agents.serving.serve import serve
from agym.api.run import run

# The seconds of a step that waits.
WAIT = 1.0


class EchoEnv:
    """Says what it is told."""

    async def reset(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        return {"message": ""}, {}

    async def step(
        self, action: dict[str, str]
    ) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        return {"message": action["message"]}, 1.0, False, False, {}

    async def close(self) -> None:
        pass


class WaitingEnv(EchoEnv):
    """Waits for a second in each step, as for a tool."""

    async def step(
        self, action: dict[str, str]
    ) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        await asyncio.sleep(WAIT)
        return await super().step(action)


ENVS = {"echo": EchoEnv, "wait": WaitingEnv}


async def main(kind: str, count: str) -> None:
    """Serve until the process is ended."""
    if hasattr(os, "sched_setaffinity"):  # one core is the server's
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    async with serve(ENVS[kind], int(count), token=False) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await server.forever()


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
