"""agym's environments in verifiers, and verifiers' rollouts in agym.

Example:
    >>> import agym, verifiers.v1 as vf
    >>> agym.adapters.verifiers.register("agym-cartpole", "CartPole-v1", tasks=range(3), parse=int)
    >>> config = vf.resolve_env_config({"taskset": {"id": "agym-cartpole"}})
    >>> env = vf.load_environment(config)
    >>> [task.data.seed for task in env.taskset]
    [0, 1, 2]
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

from agym import make_async
from agym.agents.adapters.asked_model import AskedModel, as_message
from agym.agents.adapters.common import as_text, check_env_options, task_index
from agym.api.options.environments import EnvLike
from agym.core._system.extras import require
from agym.core.protocol.arguments import is_integer
from agym.core.protocol.messages.resets import parse_seeds
from agym.core.protocol.typing import Options, Result, Start
from agym.errors import UsageError, UsageTypeError

vf: Any = require("verifiers.v1", "verifiers")
chat: Any = require("verifiers.v1.dialects.chat", "verifiers")
httpx: Any = require("httpx", "verifiers")


class EpisodeData(vf.TaskData):
    """The data that starts an episode."""

    seed: int | None = None
    options: Options | None = None


class EpisodeTask(vf.Task[EpisodeData]):
    """An episode; its reward comes from the environment."""


class Episodes(vf.Taskset[EpisodeTask, vf.TasksetConfig]):
    """The episodes to play; made by :func:`classes`."""

    tasks: ClassVar[list[dict[str, Any]]]
    prompt: ClassVar[str | None]

    def load(self) -> Iterator[EpisodeTask]:
        """Yield a task for each episode."""
        for i, task in enumerate(self.tasks):
            name = f"{self.config.id}#{task.get('seed', i)}"
            data = EpisodeData(name=name, system_prompt=self.prompt, **task)
            yield EpisodeTask(data, self.config.task)


class PlayConfig(vf.EnvConfig):
    """The player is the model, which needs no container."""

    player: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class Play(vf.Env[PlayConfig]):
    """Plays an episode: observations are the user's turns, and actions the model's replies."""

    source: ClassVar[tuple[EnvLike, Mapping[str, Any]]]
    parse: ClassVar[Any]  # a function or None

    async def run(self, task: EpisodeTask, agents: Any) -> None:
        """Play until the episode ends, or verifiers ends the model's run."""
        env, options = self.source
        total, steps, terminated, truncated = 0.0, 0, False, False
        async with make_async(env, 1, **options) as envs:
            played = envs[0]
            observation, _ = await played.reset(seed=task.data.seed, options=task.data.options)
            async with agents.player.interaction(task) as interaction:
                while not (terminated or truncated):
                    segment = await interaction.turn(as_text(observation))
                    if segment.terminated:  # for example by a limit of turns or tokens
                        break
                    action = segment.last_reply
                    if self.parse is not None:
                        action = self.parse(action)
                    observation, reward, terminated, truncated, _ = await played.step(action)
                    total += reward
                    steps += 1
        trace = interaction.trace
        trace.record_reward("env_return", total)
        metrics = {"steps": steps, "terminated": terminated, "truncated": truncated}
        trace.record_metrics({f"env_{name}": float(value) for name, value in metrics.items()})


class TalkConfig(vf.HarnessConfig):
    """The configuration that every harness has."""


class Talk(vf.Harness[TalkConfig]):
    """Sends one request per turn to the model, from this process, without containers and tools."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> Any:
        """Send the conversation to the model; verifiers records the answer."""
        if mcp_urls:
            raise UsageError("this harness has no tools: choose another one")
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [chat.message_to_wire(message) for message in prompt or []]
        async with httpx.AsyncClient(timeout=None) as client:
            response = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        return vf.ProgramResult(int(response.is_error), "", response.text)


class Classes(NamedTuple):
    """The classes that a verifiers package exports."""

    taskset: type[Episodes]
    env: type[Play]
    harness: type[Talk]


def classes(
    env: EnvLike,
    *,
    tasks: Iterable[int | Mapping[str, Any]] = range(100),
    parse: Callable[[str], Any] | None = None,
    system_prompt: str | None = None,
    **options: Any,
) -> Classes:
    """Return the classes of a verifiers package that plays an agym environment.

    Example:
        >>> import agym
        >>> taskset, env, harness = agym.adapters.verifiers.classes("CartPole-v1", parse=int)
        >>> taskset.__name__, env.__name__, harness.__name__
        ('Taskset', 'Env', 'Harness')

    A package for verifiers, which evaluations and prime-rl's workers import by name, is a module
    with two lines::

        Taskset, Env, Harness = agym.adapters.verifiers.classes(MyEnv, tasks=range(1000))
        __all__ = ["Taskset", "Env", "Harness"]

    Observations are the user's turns, and actions the model's replies. The reward of a rollout,
    ``env_return``, is the sum of the rewards of its steps, even if a limit of turns or tokens ends
    the rollout; its metrics are ``env_steps``, ``env_terminated`` and ``env_truncated``. If an
    environment raises, the episode fails and has no reward. Each rollout has a separate
    environment; coroutine environments wait on verifiers' event loop.

    The harness sends requests to the model from the process of the evaluation. To run a program
    instead, choose another harness, such as ``--env.player.harness.id null``.

    Args:
        env: As for :func:`agym.make_async`: an id, a class or a factory.
        tasks: For each task, the seed of its episode, or a dict with ``seed`` and ``options``.
        parse: Turns the model's text into an action; by default, the text is the action.
        system_prompt: The system prompt of all tasks.
        **options: Options of :func:`agym.make_async`, and keyword arguments for the environment.

    Raises:
        UsageError: A task is something else.
    """
    check_env_options(options, parse, num_envs="verifiers makes an environment for each rollout")
    if isinstance(tasks, str | Mapping) or not isinstance(tasks, Iterable):
        raise UsageTypeError(f"tasks={tasks!r} must be a list of tasks, such as range(100)")
    starts = [_parse_task(task) for task in tasks]
    if not starts:
        raise UsageError("tasks is empty: pass at least one seed")
    options = {"autoreset": "disabled", "output": "list", **options}
    player = {"source": (env, options), "parse": None if parse is None else staticmethod(parse)}
    return Classes(
        type("Taskset", (Episodes,), {"tasks": starts, "prompt": system_prompt}),
        type("Env", (Play,), player),
        type("Harness", (Talk,), {}),
    )


def factory(env: Mapping[str, Any]) -> Callable[[], RolloutEnv]:
    """Return a factory of environments that play verifiers' rollouts, for :func:`agym.make`.

    Example:
        >>> import agym
        >>> agym.adapters.verifiers.register("agym-pole", "CartPole-v1", tasks=[7], parse=int)
        >>> rollouts = agym.adapters.verifiers.factory({"taskset": {"id": "agym-pole"}})
        >>> with agym.make(rollouts, 2) as envs:
        ...     chats, infos = envs.reset()
        ...     step = envs.step(["0", "1"])
        >>> [message["role"] for message in step.observations[0]]
        ['user', 'assistant', 'user']

    The policy answers in place of the model. An episode of the coroutine environment is a rollout:
    ``reset`` starts it, and returns the messages of the first request to the model. An action is
    the answer, a text or a message with ``tool_calls``. The next observation is the messages of the
    next request, and ``info["tools"]`` its tools. The last step returns when verifiers has scored
    the rollout, with the last messages again; its reward is the sum of the rewards of the rollout's
    trainable traces. ``info`` has ``rewards`` and ``metrics`` by the agents' names, and ``stop``,
    the reason. A limit of turns or tokens is ``truncated``.

    The seed determines the task, or ``options={"task": 3}``. If a rollout fails in verifiers, the
    environment raises.

    Args:
        env: The ``[env]`` block of verifiers' configuration. Its agents run in this process, or in
            the runtimes of the configuration.

    Raises:
        UsageError: verifiers refuses the configuration, or its taskset is infinite.
    """
    if not isinstance(env, Mapping):
        raise UsageTypeError(
            f"env={env!r} must be a dict, verifiers' [env] block, such as"
            " {'taskset': {'id': 'my-taskset'}}"
        )
    try:
        config = vf.resolve_env_config(dict(env))
        taskset = vf.load_environment(config).taskset
    except (ImportError, TypeError, ValueError) as error:
        raise UsageError(f"env={env!r}: {error}") from error
    if not taskset.bounded:
        raise UsageError(f"env={env!r} has an infinite taskset: choose a finite one")
    return partial(RolloutEnv, dict(env))


class RolloutEnv:
    """Plays a rollout of verifiers in each episode; made by :func:`factory`."""

    def __init__(self, env: dict[str, Any]) -> None:
        self._env = vf.load_environment(vf.resolve_env_config(env))
        self._tasks = list(self._env.taskset)
        self._random = random.Random()
        self._model = AskedModel()
        self._rollout: Any = None  # the task of the rollout, and the request to answer next
        self._asked: Any = None

    async def reset(self, *, seed: int | None = None, options: Options | None = None) -> Start:
        """Start a rollout, and wait for its first request."""
        await self.close()
        if seed is not None:
            self._random.seed(seed)
        index = task_index(options, len(self._tasks))
        if index is None:
            index = self._random.randrange(len(self._tasks))
        self._model = AskedModel()
        self._rollout = asyncio.create_task(self._play(self._tasks[index]))
        if not await self._next():
            raise RuntimeError(f"task {index} sent no request to the model: {self._failure()}")
        return self._messages(), {"task": index, "tools": self._tools()}

    async def step(self, action: Any) -> Result:
        """Answer the request, and wait for the next one, or for the score."""
        if not self._asked.answer.done():  # the agent may have given up at its own deadline
            self._asked.answer.set_result(as_message(action))
        messages = self._messages()
        if await self._next():
            return self._messages(), 0.0, False, False, {"tools": self._tools()}
        episode = self._rollout.result()
        if not episode.ok:
            raise RuntimeError(f"the rollout failed in verifiers: {self._failure()}")
        reward = sum(trace.reward for trace in episode.traces if trace.agent.trainable)
        truncated = any(trace.is_truncated for trace in episode.traces)
        info = {
            "rewards": {trace.agent.name: trace.reward for trace in episode.traces},
            "metrics": {trace.agent.name: dict(trace.metrics) for trace in episode.traces},
            "stop": [trace.stop_condition for trace in episode.traces],
        }
        return messages, float(reward), not truncated, truncated, info

    async def close(self) -> None:
        """End the rollout that is under way."""
        if self._rollout is not None:
            self._rollout.cancel()
            await asyncio.wait([self._rollout])
        self._rollout = self._asked = None

    async def _play(self, task: Any) -> Any:
        async with self._model.serve() as url, self._env.serving():
            client = vf.EvalClientConfig(base_url=url, api_key_var="AGYM_NEEDS_NO_KEY")
            return await self._env.run_episode(task, vf.ModelContext(model="agym", client=client))

    async def _next(self) -> bool:
        """Wait for a request; return whether one arrived before the end of the rollout."""
        asked = asyncio.create_task(self._model.next())
        try:
            await asyncio.wait([asked, self._rollout], return_when=asyncio.FIRST_COMPLETED)
            self._asked = asked.result() if asked.done() else None
        finally:
            asked.cancel()
        return self._asked is not None

    def _messages(self) -> list[dict[str, Any]]:
        return list(self._asked.body["messages"])

    def _tools(self) -> list[dict[str, Any]]:
        return list(self._asked.body.get("tools") or [])

    def _failure(self) -> str:
        episode = self._rollout.result()
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        return errors[-1].message if errors else "it ended"


def _parse_task(task: Any) -> dict[str, Any]:
    """Return a task as a dict of seed and options."""
    if is_integer(task):
        task = {"seed": int(task)}
    if isinstance(task, Mapping) and {*task} <= {"seed", "options"}:
        parse_seeds(task.get("seed"), range(1), None)
        return dict(task)
    raise UsageError(f"tasks has {task!r}, which is neither a seed nor a dict of seed and options")


def register(taskset_id: str, env: EnvLike, **options: Any) -> None:
    """Register an agym environment with verifiers, in this process only.

    Example:
        >>> import agym, verifiers.v1 as vf
        >>> agym.adapters.verifiers.register("agym-acrobot", "Acrobot-v1", tasks=[7], parse=int)
        >>> vf.load_taskset(vf.TasksetConfig(id="agym-acrobot")).config.id
        'agym-acrobot'

    Use this in scripts, without an installed package. The arguments are those of :func:`classes`.

    Raises:
        UsageError: The id is the name of a module, or not a valid name.
    """
    if not isinstance(taskset_id, str):
        raise UsageTypeError(f"taskset_id={taskset_id!r} must be a string")
    name = taskset_id.replace("-", "_").lower()
    if not name.isidentifier():
        raise UsageError(f"taskset_id={taskset_id!r} must be a name of letters, digits and dashes")
    if name in sys.modules:
        raise UsageError(f"taskset_id={taskset_id!r}: there is already a module {name!r}")
    module = ModuleType(name, f"Made by agym.adapters.verifiers.register({taskset_id!r}, ...).")
    exported = {each.__name__: each for each in classes(env, **options)}
    vars(module).update(exported, __all__=list(exported))
    sys.modules[name] = module
