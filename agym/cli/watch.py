"""``agym watch``: environments on a page in the browser."""

from __future__ import annotations

import importlib
import inspect
import webbrowser
from collections.abc import Callable
from itertools import count
from typing import Annotated, Any

import typer

from agym.api.make import make_async
from agym.cli.console import console
from agym.errors import UsageError
from agym.hosts.factories import find_spec
from agym.tools.live.page import AsyncPage, watch
from agym.tools.run import run

EXAMPLES = """Examples:

agym watch CartPole-v1 -n 64

agym watch ALE/Pong-v5 -n 16 --speed 0 --open

agym watch CartPole-v1 -n 16 --policy my_agent:act
"""

# Steps a second of each environment that does not say how fast it is meant to be seen.
USUAL_SPEED = 30


def watch_command(
    env: Annotated[str, typer.Argument(help="Id of the environment.")],
    num_envs: Annotated[int, typer.Option("-n", "--num-envs", min=1, help="How many of it.")] = 16,
    policy: Annotated[
        str | None,
        typer.Option(
            help="module:function that takes a batch of observations and gives a batch of actions.",
            show_default="at random",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(min=0, help="Steps a second; 0 for no limit.", show_default="their own"),
    ] = None,
    fps: Annotated[float, typer.Option(min=0.1, max=30, help="Pictures a second, at most.")] = 30,
    steps: Annotated[
        int | None, typer.Option(min=1, help="End after so many.", show_default="never")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="Where environments live: as in agym.make.")
    ] = "process",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes.", show_default="one per core")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of environments and actions.")] = 0,
    port: Annotated[int, typer.Option(help="Port; 0 for any that is free.")] = 0,
    host: Annotated[str, typer.Option(help="Address to serve at.")] = "127.0.0.1",
    opens: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Step environments, and show them on a page in the browser.

    They begin when it is opened, and go on until Ctrl-C.
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
                usual = envs.metadata.get("render_fps") or USUAL_SPEED
                page.limit_speed((usual if speed is None else speed) or None)
                await welcome(page, opens=opens)
                for _ in count() if steps is None else range(steps):
                    actions: Any = envs.action_space.sample() if act is None else act(observations)
                    if inspect.isawaitable(actions):
                        actions = await actions
                    observations, *_ = await envs.step(actions)

    run(show())


async def welcome(page: AsyncPage, *, opens: bool) -> None:
    """Tell where the page is, and wait until somebody has it open."""
    console().print(f"{page.url}\nopen this in a browser; Ctrl-C ends it", soft_wrap=True)
    if opens:
        webbrowser.open(page.url)
    await page.wait_for_viewer()


def load(name: str) -> Callable[[Any], Any]:
    """Find a policy; commands have the current folder on their path.

    Raises:
        UsageError: There is none of that name.
    """
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise UsageError(f"--policy {name} must be module:function, such as my_agent:act")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--policy {name}: {error}") from error
    if not callable(function):
        raise UsageError(f"--policy {name} is no function")
    return function  # type: ignore[no-any-return]
