"""``agym play``: play an environment with the keyboard, on a page in the browser.

Examples:
agym play agym/Pong-v0

agym play CartPole-v1 --keys "ArrowLeft=0 ArrowRight=1" --wait

agym play Pendulum-v1 --keys "a=[-2.0] d=[2.0]" --open
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agym import make_async
from agym.api.options.environments import find_spec
from agym.api.run import run
from agym.cli.options import EnvId, OpenPage, Port, flag, number
from agym.cli.watch import DEFAULT_SPEED, welcome
from agym.watching.live.keyboard import Keyboard
from agym.watching.live.page import watch


def command(
    env: EnvId,
    keys: Annotated[
        str | None,
        typer.Option(
            help="Keys and their actions: 'a=0 left=1'; for several keys at once: 'a+w=2'.",
            show_default="the environment's keys, or the digits",
        ),
    ] = None,
    noop: Annotated[
        str | None, typer.Option(help="Action while no key is pressed.", show_default="0")
    ] = None,
    wait: Annotated[bool, flag("--wait", "Step only while a key is pressed.")] = False,
    fps: Annotated[
        float | None, number("Steps per second.", "the environment's render_fps", min=0.1)
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed.", show_default="random")] = None,
    port: Port = 0,
    open_page: OpenPage = False,
) -> None:
    """Play an environment with the keyboard, on a page in the browser.

    The page lists the keys. The game starts when the page is opened; Ctrl-C stops it.
    """
    find_spec(env)

    async def play() -> None:
        async with make_async(env, 1, backend="serial", render_mode="rgb_array") as envs:
            custom = await _ask(envs, "keys_to_action")
            meanings = await _ask(envs, "action_meanings")
            keyboard = Keyboard.of(envs.single_action_space, keys, noop, custom, meanings)
            await envs.reset(seed=seed)
            async with watch(envs, port, fps=30, share=1.0, legend=keyboard.legend) as page:
                page.limit_speed(fps or envs.metadata.get("render_fps") or DEFAULT_SPEED)
                await welcome(page, opens=open_page)
                while True:
                    if wait:
                        await page.wait_for_key()
                    await envs.step([keyboard.action(page.keys)])

    run(play())


async def _ask(envs: Any, name: str) -> Any:
    """Call the environment's ``get_{name}``; return ``None`` if there is no such method."""
    try:
        (answer,) = await envs.call(f"unwrapped.get_{name}")
    except Exception:
        return None
    return answer
