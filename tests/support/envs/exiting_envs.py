"""Environments of scripts that end without closing them, in every place."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import Any

import agym
from agym.core.backends.options import ProcessWithCaller
from tests.support.envs.coroutine_envs import AsyncTally
from tests.support.envs.plain_envs import Result, Tally
from tests.support.envs.vector_envs import Tally as VectorTally


class Hangs(Tally):
    """A step with action 9 does not come back, not for hours; nor does close, if it is told so."""

    hangs_in_close = False

    def step(self, action: Any) -> Result:
        if action == 9:
            time.sleep(10_000)
        return super().step(action)

    def close(self) -> None:
        if self.hangs_in_close:
            time.sleep(10_000)


class WaitsForever(AsyncTally):
    """One that waits as long, and that cannot be cancelled."""

    async def step(self, action: Any) -> Result:
        while action == 9:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(10_000)
        return await super().step(action)


KINDS: dict[str, dict[str, Any]] = {
    "serial": {"env": Hangs, "backend": "serial"},
    "thread": {"env": Hangs, "backend": "thread"},
    "process": {"env": Hangs, "backend": "process", "workers": 2},
    "caller": {"env": Hangs, "backend": ProcessWithCaller(), "workers": 2},
    "asyncio": {"env": partial(AsyncTally, Hangs), "backend": "asyncio"},
    "waiting": {"env": WaitsForever, "backend": "asyncio"},
    "loops": {"env": AsyncTally, "backend": "process", "workers": 2},
    "vector": {"env": VectorTally, "backend": "vector"},
    "auto": {"env": Tally},
}

make = {kind: partial(agym.make, num_envs=3, **options) for kind, options in KINDS.items()}
make_async = {
    kind: partial(agym.make_async, num_envs=3, **options) for kind, options in KINDS.items()
}
make_vec = {kind: partial(agym.make_vec, num_envs=3, **options) for kind, options in KINDS.items()}
