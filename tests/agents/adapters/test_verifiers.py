"""agym's environments in verifiers, with its release, evaluated against a server of ours."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import verifiers.v1 as vf
from aiohttp import test_utils, web
from openai import AsyncOpenAI
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig

import agym
from tests.support.envs.text_envs import Guess, Meeting

adapter = agym.adapters.verifiers

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(240)]


class Model:
    """A server of OpenAI's protocol, whose answers are those of a function of the messages."""

    def __init__(self, answer: Callable[[list[dict[str, Any]]], str]) -> None:
        self.answer = answer
        self.asked: list[list[dict[str, Any]]] = []

    async def complete(self, request: web.Request) -> web.Response:
        messages = (await request.json())["messages"]
        self.asked.append(messages)
        message = {"role": "assistant", "content": self.answer(messages)}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        about = {"id": "one", "object": "chat.completion", "created": 0, "model": "tiny"}
        return web.json_response({**about, "choices": choices, "usage": usage})

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.complete)
        async with test_utils.TestServer(app) as server:
            yield str(server.make_url("/v1"))


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
                env={"taskset": {"id": taskset}, **env}, model="tiny", rich=None, push=False,
                client={"type": "eval", "base_url": url, "api_key_var": "NO_SUCH_KEY"},
                output_dir=folder,
            )  # fmt: skip
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
    for messages in model.asked:
        assert messages[0] == {"role": "system", "content": "You guess."}
        assert messages[1]["content"] == "guess a number up to 20"


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


def rollouts_of(taskset: str, **env: Any) -> Any:
    return adapter.factory({"taskset": {"id": taskset}, **env})


def test_rollouts_of_verifiers_are_environments() -> None:
    """There and back again: what comes back is what agym plays itself."""
    adapter.register("agym-back", Guess, tasks=range(4), turns=5, parse=int)
    with agym.make(rollouts_of("agym-back"), 4) as envs, agym.make(Guess, 4, turns=5) as ours:
        ours.reset(seed=0)
        for i, env in enumerate(envs):
            messages, info = env.reset(options={"task": i})
            assert messages == [{"role": "user", "content": "guess a number up to 20"}]
            assert (info["task"], info["tools"]) == (i, [])
        chats = dict.fromkeys(range(4), messages)
        playing = [0, 1, 2, 3]
        while playing:
            guesses = [bisect(chats[i]) for i in playing]
            expected = ours.step(guesses, env_ids=playing)
            step = envs.step(guesses, env_ids=playing)
            chats |= zip(playing, step.observations, strict=True)
            assert step.rewards == expected.rewards
            over, wanted = (np.array(each[2:4]).any(axis=0).tolist() for each in (step, expected))
            assert over == wanted
            for k, terminated in enumerate(step.terminated):
                if terminated:
                    assert step.infos[k]["rewards"] == {"player": step.rewards[k]}
                    assert step.infos[k]["metrics"]["player"]["env_steps"] >= 1
            playing = [i for i, over in zip(playing, step.terminated, strict=True) if not over]


class Sums(vf.Taskset[vf.Task, vf.TasksetConfig]):
    """A taskset of verifiers' own kind: one turn, scored by a function."""

    def load(self) -> Any:
        for n in range(3):
            data = vf.TaskData(prompt=f"{n} + 1", system_prompt="Add.")
            yield SumTask(data, self.config.task)


class SumTask(vf.Task):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == str(int(self.data.prompt[0]) + 1))


class Streams(adapter.Talk):
    """A harness whose program reads a stream, as most do."""

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, urls: Any, data: Any
    ) -> Any:
        async with AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            stream = await client.chat.completions.create(
                model=ctx.model, messages=[{"role": "user", "content": data.prompt}], stream=True
            )
            told = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
        return vf.ProgramResult(0, "".join(text or "" for text in told), "")


@pytest.mark.parametrize("harness", [adapter.Talk, Streams])
def test_a_taskset_of_verifiers_is_an_environment(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("sums_for_agym")
    kind = type("Harness", (harness,), {})
    vars(module).update(Taskset=Sums, Harness=kind, __all__=["Taskset", "Harness"])
    monkeypatch.setitem(sys.modules, "sums_for_agym", module)
    local = {"agent": {"runtime": {"type": "subprocess"}}}
    with agym.make(rollouts_of("sums-for-agym", **local), 2) as envs:
        chats, infos = envs.reset(seed=3)
        assert envs.reset(seed=3).infos == infos
        assert chats[0][-1]["content"] == f"{infos[0]['task']} + 1"
        step = envs.step([str(infos[0]["task"] + 1), {"content": "no idea"}])
        assert step.rewards == [1.0, 0.0]
        assert (step.terminated, step.truncated) == ([True] * 2, [False] * 2)
        assert {*(info["task"] for info in envs.reset().infos)} <= {0, 1, 2}


def test_a_limit_cuts_off_and_an_error_is_a_fault() -> None:
    adapter.register("agym-back-limited", Guess, tasks=[0], parse=int)
    with agym.make(rollouts_of("agym-back-limited", player={"max_turns": 1})) as envs:
        envs.reset()
        step = envs.step(["0"])
        assert (step.terminated, step.truncated) == ([False], [True])
        assert step.infos[0]["stop"] == ["max_turns"]
    with agym.make(rollouts_of("agym-back-limited"), 2) as envs:
        envs.reset()
        with pytest.raises(agym.EnvError, match=r"failed in verifiers.*invalid literal"):
            envs.step(["zero", "0"])
        envs.reset(env_ids=[0])
        envs.step(["0", "0"])


async def test_rollouts_of_verifiers_wait_at_once() -> None:
    adapter.register("agym-back-meeting", Meeting, tasks=[0], parties=8)
    async with agym.make_async(rollouts_of("agym-back-meeting"), 8, output="list") as envs:
        await envs.reset()
        assert (await envs.step(["now"] * 8)).rewards == [1.0] * 8
    sys.modules.pop("agym_back_meeting")  # for the other loop
