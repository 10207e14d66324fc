"""agym's environments in verifiers, with its release, evaluated against a server of ours."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from aiohttp import web
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig

import agym
from tests.support.envs.text_envs import Guess, Meeting
from tests.tools.adapters.examples import failures

adapter = agym.adapters.verifiers

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(240)]


def test_examples_are_true() -> None:
    assert not failures(adapter)


class Model:
    """A server of OpenAI's protocol, whose answers are those of a function of the messages."""

    def __init__(self, answer: Callable[[list[dict[str, Any]]], str]) -> None:
        self.answer = answer
        self.asked: list[list[dict[str, Any]]] = []

    async def complete(self, request: web.Request) -> web.Response:
        messages = (await request.json())["messages"]
        self.asked.append(messages)
        message = {"role": "assistant", "content": self.answer(messages)}
        return web.json_response(
            {
                "id": "one",
                "object": "chat.completion",
                "created": 0,
                "model": "tiny",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        )

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.complete)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}/v1"
        finally:
            await runner.cleanup()


def bisect(messages: list[dict[str, Any]]) -> str:
    """Guess as one does."""
    low, high = 1, 20
    guesses = [m for m in messages if m["role"] == "assistant"]
    hints = [m for m in messages if m["role"] == "user"][1:]
    for guess, hint in zip(guesses, hints, strict=True):
        if hint["content"] == "higher":
            low = int(guess["content"]) + 1
        else:
            high = int(guess["content"]) - 1
    return str((low + high) // 2)


def evaluate(model: Model, taskset: str, folder: Path, **env: Any) -> list[Any]:
    """Run verifiers' own evaluation; gives its episodes."""

    async def main() -> list[Any]:
        async with model.serve() as url:
            config = EvalConfig(
                env={"taskset": {"id": taskset}, **env},
                model="tiny",
                client={"type": "eval", "base_url": url, "api_key_var": "NO_SUCH_KEY"},
                rich=None,
                push=False,
                output_dir=folder,
            )
            return await run_eval(config)

    return asyncio.run(main())


def test_an_evaluation_plays_the_episodes(tmp_path: Path) -> None:
    adapter.register(
        "agym-guess", Guess, tasks=range(16), turns=6, parse=int, system_prompt="You guess."
    )
    model = Model(bisect)
    episodes = evaluate(model, "agym-guess", tmp_path)
    assert len(episodes) == 16
    with agym.make(Guess, 16) as envs:
        numbers = [info["number"] for info in envs.reset(seed=0).infos]
    for episode in episodes:
        assert episode.ok, episode.errors
        (trace,) = episode.traces
        assert trace.reward == 1.0
        assert trace.metrics["env_terminated"] == 1.0
        seed = episode.task.data.seed
        replies = [m.content for m in trace.branches[-1].messages if m.role == "assistant"]
        assert int(replies[-1]) == numbers[seed]
        assert trace.metrics["env_steps"] == len(replies) == trace.num_turns
    assert all(
        messages[0] == {"role": "system", "content": "You guess."} for messages in model.asked
    )
    assert all(messages[1]["content"] == "guess a number up to 20" for messages in model.asked)


def test_episodes_that_end_otherwise(tmp_path: Path) -> None:
    tasks = [{"options": {"number": 9}}]
    adapter.register("agym-guess-lost", Guess, tasks=tasks, turns=3, parse=int)
    (episode,) = evaluate(Model(lambda _: "1"), "agym-guess-lost", tmp_path / "lost")
    (trace,) = episode.traces
    assert (trace.reward, trace.metrics["env_truncated"]) == (0.0, 1.0)
    (episode,) = evaluate(
        Model(lambda _: "1"), "agym-guess-lost", tmp_path / "short", player={"max_turns": 2}
    )
    (trace,) = episode.traces
    assert trace.metrics["env_steps"] == 2.0
    assert trace.metrics["env_truncated"] == trace.metrics["env_terminated"] == 0.0
    assert trace.stop_condition == "max_turns"


def test_an_environment_that_raises_fails_its_episode(tmp_path: Path) -> None:
    adapter.register("agym-guess-broken", Guess, tasks=[1])
    (episode,) = evaluate(Model(lambda _: "raise"), "agym-guess-broken", tmp_path)
    assert not episode.ok
    assert "the tool is broken" in episode.last_error.message
    assert not episode.traces or not episode.traces[0].rewards


def test_rollouts_wait_at_once(tmp_path: Path) -> None:
    adapter.register("agym-meeting", Meeting, tasks=range(8), parties=8)
    episodes = evaluate(Model(lambda _: "now"), "agym-meeting", tmp_path)
    assert [episode.traces[0].reward for episode in episodes] == [1.0] * 8


def test_a_package_exports_the_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guess_package.py").write_text(
        "import agym\n"
        "from tests.support.envs.text_envs import Guess\n"
        "Taskset, Env, Harness = agym.adapters.verifiers.classes(Guess, tasks=[5], parse=int)\n"
        '__all__ = ["Taskset", "Env", "Harness"]\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    (episode,) = evaluate(Model(bisect), "guess-package", tmp_path)
    assert episode.ok
    assert episode.traces[0].metrics["env_steps"] >= 1


def test_bad_arguments() -> None:
    with pytest.raises(agym.UsageError, match="neither a seed"):
        adapter.classes(Guess, tasks=["a"])
    with pytest.raises(agym.UsageError, match="there is a module 'sys' already"):
        adapter.register("sys", Guess)
    with pytest.raises(agym.UsageError, match="must be a name"):
        adapter.register("a.b", Guess)
    assert "a.b" not in sys.modules
    assert vf.Env in adapter.Play.__mro__
