"""The pages that ``agym.watch`` returns, for sync and async code."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any, Protocol, overload

from agym import AsyncEnvs, Tap, envs_of
from agym.api.run import LoopThread
from agym.core._system.defer_signals import Uninterrupted
from agym.core._system.extras import require
from agym.core._system.fork_safety import abandon_in_forks
from agym.core.engine.attached import Attached
from agym.core.protocol.arguments import check_count, check_seconds
from agym.core.web.server import WebServer, bind
from agym.core.web.settings import ServerSettings
from agym.errors import ClosedError, UsageError
from agym.watching.live.hub import Hub
from agym.watching.live.web_app import MAX_BYTES, MAX_FPS, check_positive, make_app

# Receives warnings; a program that sets up no logging gets none of it printed.
LOG = logging.getLogger("agym.watch.http")
LOG.addHandler(logging.NullHandler())


class Page(Attached):
    """A page that shows environments in a browser; made by :func:`agym.watch`.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 4, render_mode="rgb_array") as envs:
        ...     with agym.watch(envs) as page:
        ...         observations, infos = envs.reset(seed=0)
        >>> page.url, page.viewers
        ('http://127.0.0.1:...', 0)

    It is served until the end of its block, until :meth:`close`, or until the environments are
    closed.

    Attributes:
        url: The page's address, including the token that grants access.
    """

    _is_async = False
    _thread: LoopThread | None = None
    _closed = False

    def __init__(self, tap: Tap, host: str, port: int, **about: Any) -> None:
        """Listen; ``about`` are the options of :class:`Hub`."""
        self._tap = tap
        self._about = about
        self._token = secrets.token_urlsafe(16)
        self._listening = bind(host, port)
        where, number, *_ = self._listening.getsockname()
        where = f"[{where}]" if ":" in where else where
        self.url = f"http://{where}:{number}/?token={self._token}"
        abandon_in_forks(self)
        try:
            self._begin()
        except BaseException:
            self._listening.close()
            raise

    def _begin(self) -> None:
        self._thread = LoopThread("agym-page")
        try:
            self._do(self._serve)
        except BaseException:
            self._thread.close()
            raise

    def _do(self, function: Callable[[], None]) -> None:
        assert self._thread is not None
        self._thread.call(function)

    def _serve(self) -> None:
        self._hub = Hub(self._tap, **self._about)
        app = make_app(self._hub, self._token, self._tap.num_envs)
        settings = ServerSettings(message_bytes=MAX_BYTES)
        self._server = WebServer(app, self._listening, settings, extra="watch", log=LOG)
        self._hub.metrics.start()

    @property
    def viewers(self) -> int:
        """Number of browsers in which the page is open."""
        return self._hub.viewers

    @property
    def keys(self) -> frozenset[str]:
        """Keys that are held down in the page, named as in ``KeyboardEvent.key``."""
        return self._hub.keys

    def _control(self, function: Callable[[], None]) -> None:
        """Call a function that affects the caller's steps.

        Raises:
            ClosedError: The page was closed.
        """
        if self._closed:
            raise ClosedError("this page is closed: call agym.watch(envs) for another")
        self._do(function)

    def pause(self) -> None:
        """Pause the caller's loop: hold the results of further steps, as the page's button does."""
        self._control(lambda: self._hub.set_pause(True))

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._control(lambda: self._hub.set_pause(False))

    def limit_speed(self, steps: float | None) -> None:
        """Limit the steps per second of each environment; ``None`` for no limit."""
        if steps is not None:
            check_seconds("steps", steps)
        self._control(lambda: self._hub.set_speed(steps, default=True))

    def log(self, **values: float) -> None:
        """Draw values of your own, such as losses, over the steps so far; each name is a chart.

        Example:
            >>> import agym
            >>> with agym.make("CartPole-v1", 4) as envs, agym.watch(envs) as page:
            ...     page.log(loss=0.25, entropy=0.69)

        Args:
            **values: Numbers, or arrays and tensors of one number.

        Raises:
            UsageError: A value is not a number, or there are more than 32 names.
            ClosedError: The page was closed.
        """
        if self._closed:
            raise ClosedError("this page is closed: call agym.watch(envs) for another")
        self._hub.metrics.log(values)

    async def _end(self) -> None:
        await self._hub.close()
        await self._server.aclose()

    def _finish(self) -> None:
        if self._closed or self._thread is None:
            return
        with Uninterrupted():
            self._thread.call(self._end)
            self._thread.close()
            self._closed = True

    def abandon(self) -> None:
        """Release the port in a forked child, which cannot serve."""
        self._listening.close()
        self._closed = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}" target="_blank">{self.url}</a>'


class AsyncPage(Page):
    """A page on the caller's event loop; made by :func:`agym.watch`.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.make_async("CartPole-v1", 4, render_mode="rgb_array") as envs:
        ...         async with agym.watch(envs) as page:
        ...             return page.url
        >>> agym.run(main())
        'http://127.0.0.1:...'
    """

    _is_async = True

    def _begin(self) -> None:
        self._idle_task: asyncio.Task[None] | None = None
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                "no event loop is running: call agym.watch() for async environments in a coroutine"
            ) from None
        self._serve()
        self._hub.take_idle = self._take_idle

    def _do(self, function: Callable[[], None]) -> None:
        function()

    def _take_idle(self) -> None:
        if self._idle_task is None:
            self._idle_task = asyncio.create_task(self._take_and_wait())

    async def _take_and_wait(self) -> None:
        try:
            for ticket in self._hub.camera.take():
                await self._tap.wait(ticket)
        finally:
            self._idle_task = None

    async def wait_for_viewer(self) -> None:
        """Wait until a browser has the page open."""
        await self._hub.arrival.wait()

    async def wait_for_key(self) -> None:
        """Wait until a key is held down in the page."""
        await self._hub.pressed.wait()

    async def _afinish(self) -> None:
        if self._closed:
            return
        await self._end()
        if self._idle_task is not None:
            await asyncio.wait([self._idle_task])
        self._closed = True

    def _abort(self) -> None:
        """Leave it to :meth:`aclose`, because a page cannot stop without its loop."""

    async def __aexit__(self, *_: object) -> None:
        await self._afinish()


class NotAsync(Protocol):
    """What :func:`watch` shows with a :class:`Page`; :class:`AsyncEnvs` have no ``close``."""

    def close(self) -> object: ...


@overload
def watch(
    envs: AsyncEnvs, port: int = ..., *, host: str = ..., fps: float = ..., share: float = ...,
    legend: str = ..., title: str | None = ...,
) -> AsyncPage: ...  # fmt: skip
@overload
def watch(
    envs: NotAsync, port: int = ..., *, host: str = ..., fps: float = ..., share: float = ...,
    legend: str = ..., title: str | None = ...,
) -> Page: ...  # fmt: skip
def watch(
    envs: Any,
    port: int = 0,
    *,
    host: str = "127.0.0.1",
    fps: float = 10,
    share: float = 0.05,
    legend: str = "",
    title: str | None = None,
) -> Page:
    """Serve a web page that shows environments while they are stepped.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 4, render_mode="rgb_array") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     with agym.watch(envs) as page:
        ...         print(page.url)
        http://127.0.0.1:...

    The page shows rendered pictures and statistics of the environments, and which of them are slow
    or were replaced. Its controls pause, single-step or slow down the environments. A separate
    thread serves the page; for :func:`agym.make_async`, the running event loop (use
    ``async with``). Only environments in view are rendered, before one of the caller's steps;
    without viewers, nothing is rendered. Episodes are counted from the start, so a browser that
    connects later shows the whole curve. Slow browsers do not delay the environments.

    With ``rgb_array_list``, the page consumes the frames that it shows. An open page keeps
    unreferenced environments alive.

    Args:
        envs: Opened environments that agym runs, wrapped or not.
        port: Port; 0 for any free port.
        host: Address to listen on; any other than loopback exposes the page to the network.
        fps: Maximum number of frames per second, up to 30; can be changed on the page.
        share: Maximum share of the time of this process's cores that rendering may take.
        legend: Text that describes keys. With a legend, the page reports pressed keys: see
            :attr:`Page.keys`.
        title: Name of the run; by default the id of the environments.

    Raises:
        UsageError: The port is in use, the environments already have a page, or an argument is
            invalid.
        MissingExtraError: Starlette, uvicorn or Pillow is not installed.
    """
    envs = envs_of(envs, "agym.watch")
    if not isinstance(host, str):
        raise UsageError(f"host={host!r} must be an address, such as '127.0.0.1'")
    if not isinstance(title, str | None):
        raise UsageError(f"title={title!r} must be a text")
    if check_count("port", port, 0) > 65535:
        raise UsageError(f"port={port} must be at most 65535")
    fps, share = check_positive("fps", fps, MAX_FPS), check_positive("share", share, 1.0)
    spec = getattr(envs, "spec", None)
    if title is None:
        title = "environments" if spec is None else spec.id
    pictures = getattr(envs, "render_mode", None) not in (None, "human")
    if pictures:
        require("PIL.Image", "watch")
    pages = envs.tap.pages
    if any(not page._closed for page in pages):
        raise UsageError("these environments already have a page: close() it first")
    kind = AsyncPage if isinstance(envs, AsyncEnvs) else Page
    page = kind(
        envs.tap, host, port, title=title, fps=fps, share=share, pictures=pictures, legend=legend
    )
    pages[:] = [page]
    return page
