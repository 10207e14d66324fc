"""agym's environments in TRL's ``GRPOTrainer``: as its environment class, and in its rollouts.

Example:
    >>> import agym
    >>> class Guess:
    ...     async def reset(self, *, seed=None, options=None):
    ...         return "Guess a number from 1 to 9.", {}
    ...     async def step(self, action):
    ...         right = action == 7
    ...         return "right" if right else "wrong", float(right), right, False, {}
    ...     async def close(self):
    ...         pass
    >>> def guess(number: int) -> int:
    ...     '''Guess the number.
    ...
    ...     Args:
    ...         number: Your guess.
    ...     '''
    ...     return number
    >>> Environment = agym.adapters.trl.environment_class(Guess, tools=[guess])
    >>> # GRPOTrainer(..., environment_factory=Environment)
    >>> rollouts = agym.adapters.trl.rollout_func(Guess, parse=int)
    >>> # GRPOTrainer(..., rollout_func=rollouts, reward_funcs=agym.adapters.trl.env_reward)

``environment_class`` provides tools for the model; TRL calls them for one completion after the
other. ``rollout_func`` plays all completions of a batch, and their environments step at the same
time; so use it for environments that wait.
"""

from __future__ import annotations

import inspect
import typing
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agym import Envs, make
from agym.agents.adapters.common import Seat, as_text, check_env_options, check_function
from agym.agents.adapters.conversations import Conversation, Prompt, Text
from agym.api.options.environments import EnvLike
from agym.core._system.extras import require
from agym.core.protocol.arguments import check_count
from agym.errors import AgymError, UsageError, UsageTypeError

require("trl", "trl")

# From a trainer and the tokens of each conversation to new tokens and their log-probabilities.
Generate = Callable[[Any, list[list[int]]], tuple[list[list[int]], list[list[float]] | None]]


class Environment:
    """The environment of one completion in ``GRPOTrainer``; see :func:`environment_class`.

    Attributes:
        total: Sum of the rewards of this episode.
        turns: Number of steps of this episode.
        terminated: Whether the episode was terminated.
        truncated: Whether the episode was truncated.
        error: The environment's error in this episode, or ``None``.
    """

    _env: ClassVar[Any]
    _options: ClassVar[dict[str, Any]]
    _made: ClassVar[weakref.WeakSet[Environment]]

    def __init__(self) -> None:
        self._seat = Seat(self._env, self._options)
        self._clear()
        self._made.add(self)

    def _clear(self) -> None:
        self.total = 0.0
        self.turns = 0
        self.terminated = self.truncated = False
        self.error: AgymError | None = None

    def reset(self, **row: Any) -> str:
        """Start an episode; TRL appends the observation to the last message of the prompt."""
        self._clear()
        observation, _ = self._seat.reset(row.get("seed"), row.get("options"))
        return as_text(observation)

    def get_reward(self) -> float | None:
        """Return the sum of the rewards; after an error ``None``, which TRL ignores."""
        return None if self.error is not None else self.total

    @classmethod
    def close_all(cls) -> None:
        """Close all environments of this class, because TRL does not."""
        for environment in list(cls._made):
            environment._seat.close()

    async def _act(self, action: Any) -> str:
        try:
            step = await self._seat.step_async(action)
        except UsageError:  # a mistake of the model, which TRL reports to it
            raise
        except AgymError as error:
            self.error = self.error or error
            raise
        self.turns += 1
        self.total += step.reward
        self.terminated, self.truncated = step.terminated, step.truncated
        return as_text(step.observation)


def step(action: str) -> str:
    """Take an action in the environment, and read the result.

    Args:
        action: The action.
    """
    return action


def environment_class(
    env: EnvLike,
    *,
    tools: Sequence[Callable[..., Any]] = (step,),
    name: str = "Environment",
    **options: Any,
) -> type[Environment]:
    """Return a class for ``GRPOTrainer(environment_factory=...)``; its tools step an environment.

    Example:
        >>> import agym, asyncio
        >>> def push(direction: int) -> int:
        ...     '''Push the cart.
        ...
        ...     Args:
        ...         direction: 0 for left, 1 for right.
        ...     '''
        ...     return direction
        >>> Environment = agym.adapters.trl.environment_class("CartPole-v1", tools=[push])
        >>> environment = Environment()
        >>> prompt = environment.reset(seed=0)
        >>> answer = asyncio.run(environment.push(direction=1))
        >>> environment.get_reward()
        1.0
        >>> Environment.close_all()

    Each function in ``tools`` becomes a method with the same name, parameters and docstring, which
    TRL describes to the model. The function's result is the action of a step; the model receives
    the observation. By default, there is one tool, ``step(action: str)``. Tools are coroutines: in
    a trainer that runs rollouts concurrently, they wait at the same time.

    The columns ``seed`` and ``options`` of TRL's dataset are passed to the environment's reset, so
    that all completions of a row play the same task. The reward of an episode is the sum of the
    rewards of its steps, 0 without steps. If the environment raises, the model receives the error,
    and TRL ignores the completion's reward.

    Args:
        env: As for :func:`agym.make_async`: an id, a class or a factory.
        tools: Functions with annotations and a docstring in Google's style.
        name: Name of the class, under which TRL logs the reward.
        **options: Options of :func:`agym.make_async`, and keyword arguments for the environment.

    Returns:
        A subclass of :class:`Environment`; its ``close_all()`` closes the trainer's environments.

    Raises:
        UsageError: A tool has no docstring, or its name is not allowed.
    """
    check_env_options(options)
    if not isinstance(tools, Sequence) or not all(map(inspect.isroutine, tools)):
        raise UsageTypeError(f"tools={tools!r} must be a list of functions or methods")
    if not tools:
        raise UsageError("tools is empty: the model needs at least one tool")
    methods: dict[str, Any] = {}
    for tool in tools:
        if inspect.iscoroutinefunction(tool):
            raise UsageTypeError(
                f"the tool {tool.__name__!r} must be a plain `def` that returns the action: put"
                " code that waits into the environment's step"
            )
        if tool.__name__ in methods:
            raise UsageError(f"two tools are named {tool.__name__!r}: rename one")
        if hasattr(Environment, tool.__name__) or tool.__name__.startswith("_"):
            raise UsageError(f"a tool cannot be named {tool.__name__!r}: rename the function")
        if not tool.__doc__:
            raise UsageError(f"the tool {tool.__name__!r} needs a docstring for the model")
        methods[tool.__name__] = _as_method(tool)
    if callable(env) and not isinstance(env, type):
        methods["_env"] = staticmethod(env)
    attributes: dict[str, Any] = {
        "_env": env,
        "_options": options,
        "_made": weakref.WeakSet(),
        "__doc__": None,
    }
    return type(name, (Environment,), {**attributes, **methods})


def _as_method(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine method that steps with a function's result, and has its signature."""

    async def method(self: Environment, /, *arguments: Any, **keywords: Any) -> str:
        return await self._act(tool(*arguments, **keywords))

    # Resolve annotations here, because their names are defined in the function's module.
    hints = {**typing.get_type_hints(tool), "return": str}
    signature = inspect.signature(tool)
    self_parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [
        parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[self_parameter, *parameters], return_annotation=str
    )
    method.__annotations__ = hints
    method.__doc__ = tool.__doc__
    method.__name__ = method.__qualname__ = tool.__name__
    method.__module__ = tool.__module__
    return method


def env_reward(env_reward: list[float | None], **_: Any) -> list[float | None]:
    """Return the rewards of the episodes; the reward function for :func:`rollout_func`.

    Example:
        >>> import agym
        >>> agym.adapters.trl.env_reward(completions=["a", "b"], env_reward=[1.0, None])
        [1.0, None]

    The reward of an episode that a fault interrupted is ``None``, which TRL ignores.
    """
    return env_reward


def rollout_func(
    env: EnvLike,
    *,
    max_turns: int = 16,
    parse: Callable[[str], Any] | None = None,
    seed: int | Callable[[Prompt], int] = 0,
    generate: Generate | None = None,
    **options: Any,
) -> Rollouts:
    """Return a function for ``GRPOTrainer(rollout_func=...)`` that plays whole conversations.

    Example:
        >>> import agym
        >>> with agym.adapters.trl.rollout_func("CartPole-v1", parse=int) as rollouts:
        ...     pass  # GRPOTrainer(..., rollout_func=rollouts, reward_funcs=env_reward).train()

    All completions of a batch are played at once, each in a separate environment: the trainer
    generates the turns of all unfinished conversations, then their environments step at the same
    time. The first observation is appended to the prompt; the others follow the model's turns as
    messages of the user, and TRL's ``env_mask`` excludes their tokens from the loss. A conversation
    ends with its episode, after ``max_turns``, or when the next observation would exceed
    ``max_completion_length``; in the last two cases, ``env_truncated`` is true.

    For each completion, reward functions receive ``env_reward`` (the sum of the rewards, or
    ``None`` after a fault that ``on_fault="restart"`` handled), ``env_turns``, ``env_terminated``
    and ``env_truncated``. Without ``on_fault``, an environment that raises ends the training.

    Args:
        env: As for :func:`agym.make`: an id, a class or a factory, also of a coroutine environment.
        max_turns: Maximum number of steps of an episode.
        parse: Turns the model's text into an action; by default, the text is the action.
        seed: The seed of the first prompt's task; each further prompt gets the next number. Or a
            function from a prompt to a seed. All completions of one prompt play the same task.
        generate: ``generate(trainer, contexts)`` returns the new tokens of each conversation, and
            their log-probabilities or ``None``; by default, the trainer generates, with or without
            vLLM.
        **options: Options of :func:`agym.make`, and keyword arguments for the environments.

    Returns:
        The function. It keeps its environments between calls; ``close()`` it, or use ``with``.

    Raises:
        UsageError: An argument is invalid.
    """
    check_env_options(options, parse, num_envs="each completion of a batch has an environment")
    check_function("generate", generate, "takes (trainer, contexts) and returns tokens")
    max_turns = check_count("max_turns", max_turns)
    if not callable(seed):
        seed = check_count("seed", seed, least=0)
    options = {"autoreset": "disabled", "output": "list", **options}
    return Rollouts(env, options, max_turns, parse, seed, generate or generate_as_trainer)


def generate_as_trainer(
    trainer: Any, contexts: list[list[int]]
) -> tuple[list[list[int]], list[list[float]] | None]:
    """Generate once for each conversation, as the trainer is configured."""
    generate = getattr(trainer, "_generate_single_turn", None)
    if generate is None:
        raise UsageError("agym can't generate with this version of TRL: pass generate=")
    ids, logprobs = generate(contexts, None, {}, num_generations=1)
    return ids, logprobs


@dataclass(eq=False)
class Rollouts:
    """Plays the completions of a batch; made by :func:`rollout_func`."""

    _env: EnvLike
    _options: dict[str, Any]
    _max_turns: int
    _parse: Callable[[str], Any] | None
    _seed: int | Callable[[Prompt], int]
    _generate: Generate
    _envs: Envs | None = None
    _tasks: int = 0  # number of tasks so far

    def __call__(self, prompts: list[Prompt], trainer: Any) -> dict[str, list[Any] | None]:
        """Play one conversation for each prompt."""
        envs = self._enough(len(prompts))
        text = Text(trainer)
        ids = list(range(len(prompts)))
        # The result has all environments, and there may be more environments than prompts.
        observations = envs.reset(seed=self._seeds(prompts, trainer), env_ids=ids).observations
        games = [
            Conversation(text.prompt(prompt, observation), trainer.max_completion_length)
            for prompt, observation in zip(prompts, observations[: len(prompts)], strict=True)
        ]
        scored = False
        for turn in range(1, self._max_turns + 1):
            playing = [i for i, game in enumerate(games) if not game.over]
            if not playing:
                break
            contexts = [games[i].prompt_ids + games[i].completion_ids for i in playing]
            new, logprobs = self._generate(trainer, contexts)
            scored = logprobs is not None
            for k, i in enumerate(playing):
                room = games[i].room - len(games[i].completion_ids)
                new[k] = new[k][:room]
                games[i].add(new[k], logprobs[k][:room] if logprobs else None, 1)
            actions: list[Any] = text.tokenizer.batch_decode(new, skip_special_tokens=True)
            if self._parse is not None:
                actions = [self._parse(action) for action in actions]
            result = envs.step(actions, env_ids=playing)
            for i, *step in zip(playing, *result, strict=True):
                self._follow(games[i], step, text, last=turn == self._max_turns)
        return {
            "prompt_ids": [game.prompt_ids for game in games],
            "completion_ids": [game.completion_ids for game in games],
            "logprobs": [game.logprobs for game in games] if scored else None,
            "env_mask": [game.env_mask for game in games],
            "env_reward": [game.total for game in games],
            "env_turns": [game.turns for game in games],
            "env_terminated": [game.terminated for game in games],
            "env_truncated": [game.truncated for game in games],
        }

    def _follow(self, game: Conversation, step: list[Any], text: Text, last: bool) -> None:
        """Add the result of a step to a conversation."""
        observation, reward, game.terminated, game.truncated, info = step
        game.turns += 1
        if "fault" in info:
            game.total = None
        elif game.total is not None:
            game.total += float(reward)
        if game.over:
            return
        ids = text.reply(observation, game.completion_ids[-1])
        if last or len(game.completion_ids) + len(ids) >= game.room:
            game.truncated = True
        else:
            game.add(ids, None, 0)

    def _enough(self, n: int) -> Envs:
        if self._envs is None or self._envs.num_envs < n:
            self.close()
            self._envs = make(self._env, n, **self._options)
        return self._envs

    def _seeds(self, prompts: list[Prompt], trainer: Any) -> list[int]:
        if callable(self._seed):
            return [self._seed(prompt) for prompt in prompts]
        training = trainer.model.training
        completions = trainer.num_generations if training else trainer.num_generations_eval
        accelerator = trainer.accelerator
        # Each of the trainer's processes has a slice of the batch, all of the same length.
        first = accelerator.process_index * len(prompts)
        seeds = [self._seed + self._tasks + (first + i) // completions for i in range(len(prompts))]
        self._tasks += -(-accelerator.num_processes * len(prompts) // completions)
        return seeds

    def close(self) -> None:
        """Close the environments; the next call makes new ones."""
        if self._envs is not None:
            self._envs.close()
            self._envs = None

    def __enter__(self) -> Rollouts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
