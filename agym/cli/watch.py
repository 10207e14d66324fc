"""``agym watch``: show environments on a page in the browser.

Examples:
agym watch CartPole-v1 -n 64

agym watch ALE/Pong-v5 -n 16 --speed 0 --open

agym watch CartPole-v1 -n 16 --policy my_agent:act
"""

from __future__ import annotations

import importlib
import inspect
import webbrowser
from collections.abc import Callable
from itertools import count
from typing import Annotated, Any

import typer

from agym import make_async
from agym.api.options.environments import find_spec
from agym.api.run import run
from agym.cli.console import console
from agym.cli.options import Backend, EnvId, NumEnvs, OpenPage, Port, Seed, Workers, number
from agym.errors import UsageError
from agym.watching.live.page import AsyncPage, watch

# Steps per second of environments whose metadata has no render_fps.
DEFAULT_SPEED = 30


def command(
    env: EnvId,
    num_envs: NumEnvs = 16,
    policy: Annotated[
        str | None,
        typer.Option(
            help="module:function that maps a batch of observations to a batch of actions.",
            show_default="random actions",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        number("Steps per second; 0 for no limit.", "the environment's render_fps", min=0),
    ] = None,
    fps: Annotated[float, number("Maximum frames per second.", min=0.1, max=30)] = 30,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many steps.", show_default="never")
    ] = None,
    backend: Backend = "auto",
    workers: Workers = None,
    seed: Seed = 0,
    port: Port = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    open_page: OpenPage = False,
) -> None:
    """Step environments and show them on a page in the browser.

    Stepping starts when the page is opened; Ctrl-C stops it.
    """
    find_spec(env)
    act = None if policy is None else load(policy)

    async def show() -> None:
        async with make_async(
            env, num_envs, backend=backend, workers=workers, render_mode="rgb_array",
            on_fault="restart",
        ) as envs:  # fmt: skip
            envs.action_space.seed(seed)
            observations, _ = await envs.reset(seed=seed)
            async with watch(envs, port, host=host, fps=fps, share=1.0) as page:
                usual = envs.metadata.get("render_fps") or DEFAULT_SPEED
                page.limit_speed((usual if speed is None else speed) or None)
                await welcome(page, opens=open_page)
                for _ in count() if steps is None else range(steps):
                    actions: Any = envs.action_space.sample() if act is None else act(observations)
                    if inspect.isawaitable(actions):
                        actions = await actions
                    observations, *_ = await envs.step(actions)

    run(show())


async def welcome(page: AsyncPage, *, opens: bool) -> None:
    """Print the page's address and wait until it is opened."""
    console().print(
        f"{page.url}\nOpen this page in a browser. Press Ctrl-C to stop.", soft_wrap=True
    )
    if opens:
        webbrowser.open(page.url)
    await page.wait_for_viewer()


def load(name: str) -> Callable[[Any], Any]:
    """Import a policy; ``Commands`` puts the current folder on ``sys.path``.

    Raises:
        UsageError: There is no such module or function, or the import raised.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise UsageError(f"--policy {name} must be module:function, such as my_agent:act")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (Exception, SystemExit) as error:  # the module may run any code
        raise UsageError(f"--policy {name}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise UsageError(f"--policy {name} is not a function")
    return function  # type: ignore[no-any-return]
