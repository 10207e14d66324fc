"""Twins: many environments of a registered id in one program, with the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from gymnasium.envs.registration import load_env_creator
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import iterate

from agym.core.hosts.vector.twins import PartialStepError, Wrapping, parts_of
from agym.core.protocol.attributes import get_attribute, has_attribute, is_wrapped, look_up
from agym.core.protocol.typing import Array
from agym.errors import UsageError
from agym.rules.contract import RuleBook
from agym.rules.engines import CompiledEngine, Outputs
from agym.rules.kernels import NEXT_STEP
from agym.rules.vector_env import RulesVectorEnv
from agym.twins.engine import ArrayEngine
from agym.twins.layered import LayeredEngine
from agym.twins.layers import layer_of, reason_unsupported
from agym.twins.numpy_functions import Generators

# Options of ``reset`` of classic control; the originals ignore all others.
BOUNDS = {"low", "high", "x_init", "y_init"}

# The attributes that all environments of a twin share, and the types of others that can be read.
SHARED = ("metadata", "render_mode", "observation_space", "action_space")
PLAIN = (int, float, complex, str, bytes, bool, np.generic, type(None))


class Twin(RulesVectorEnv):
    """Many environments of a class of Gymnasium; each class has a subclass.

    Each environment has its own ``np.random.Generator``, seeded as Gymnasium seeds it.

    Attributes:
        entry_point: The class of the originals, ``"module:Class"``.
        family: Computes their steps.
        original: One of Gymnasium's environments, with the same arguments.
        env: The same environment in the wrappers that the twin computes.
        verdict: How it was compared with the originals, if it was.
    """

    verdict: str = ""
    env: Any
    loops: Any

    entry_point: ClassVar[str]
    family: ClassVar[Any]
    kind: ClassVar[str] = "arrays"

    def __init__(
        self,
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        copy: bool = True,
        render_mode: str | None = None,
        chain: Sequence[Wrapping] = (),
        **parameters: Any,
    ) -> None:
        """Make environments; ``parameters`` are the keywords of the original."""
        self.original = load_env_creator(self.entry_point)(render_mode=render_mode, **parameters)
        self.original.spec = self.spec
        self._chain, self._layers, self.env = tuple(chain), [], self.original
        for each in chain:
            self.env = each.around(self.env)
            self._layers.append(layer_of(self.env, num_envs))
        self._generators = Generators(num_envs)
        self._np_random_seeds = [-1] * num_envs
        super().__init__(
            num_envs, self.kind, autoreset_mode, max_episode_steps, copy, render_mode, **parameters
        )
        self.metadata |= {"renders_ids": True, "steps_some": True}
        self._check, self._checked = self._checked, self._with_precision

    def _with_precision(self, actions: Any) -> Array:
        """Check actions, and keep their precision, in which the originals compute."""
        wide: Array = self._check(actions)
        given = np.asarray(actions)
        if given.dtype.kind != "f":
            return wide
        if given.itemsize not in (4, 8):
            raise UsageError(f"actions of {given.dtype}: use float32 or float64")
        return given.astype(given.dtype.newbyteorder("="), copy=False)

    def _read(self) -> Any:
        return SimpleNamespace(
            name=type(self.original).__name__, metadata=self.original.metadata,
            observation_space=self.env.observation_space, action_space=self.env.action_space,
        )  # fmt: skip

    def _make_engine(self, limit: int | None, mode: int) -> Any:
        engine = self._own_engine(limit, mode)
        if not self._layers:
            return engine
        return LayeredEngine(engine, self._layers, self.env.observation_space, self.num_envs, mode)

    def _own_engine(self, limit: int | None, mode: int) -> Any:
        family = self.family(self.original, self.num_envs, self._generators)
        return ArrayEngine(family, self.num_envs, limit, mode)

    @classmethod
    def how(cls, num_envs: int) -> str:
        """Return a phrase that says how a batch is computed, such as "with arrays"."""
        how = getattr(cls.family, "how", lambda count: "compiled")
        return str(how(num_envs))

    @classmethod
    def quiet(cls) -> Any:
        """Return a context in which originals print nothing."""
        return getattr(cls.family, "quiet", nullcontext)()

    def __repr__(self) -> str:
        what = ", ".join(["twin", self.how(self.num_envs), *filter(None, [self.verdict])])
        return f"{super().__repr__().removesuffix(')')}, {what})"

    @classmethod
    def reason_unsupported(cls, wrapper: Any) -> str:
        """Return why the twin can't compute a wrapper; ``""`` if it can."""
        return reason_unsupported(wrapper)

    # ---------------------------------------------------------------- random numbers

    def _seed(self, mask: Array, seeds: Sequence[int | None]) -> None:
        for i in np.flatnonzero(mask).tolist():
            if seeds[i] is not None or self._generators[i] is None:
                generator, self._np_random_seeds[i] = seeding.np_random(seeds[i])
                self._generators.put(i, generator)

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The environments' generators of random numbers."""
        self._seed(np.array([each is None for each in self._generators]), [None] * self.num_envs)
        return tuple(self._generators)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seeds of ``np_random``."""
        return tuple(self._np_random_seeds)

    # ---------------------------------------------------------------- results

    def _run(self, part: Any, *arguments: Any) -> Any:
        """Run a part of a step; environments that fail alone must be reset."""
        try:
            return part(*arguments)
        except PartialStepError as error:
            self._was_reset[[*error.failures]] = self.was_reset = False
            raise
        except BaseException:
            self._was_reset[:] = self.was_reset = False
            raise

    def _infos(self, infos: Any, mask: Array | None, vector_infos: bool = True) -> dict[str, Any]:
        columns = {**infos} if isinstance(infos, dict) else {}
        return converted(columns) if vector_infos else columns

    def play(self, actions: Any, first: int = 0, stop: int | None = None) -> None:
        """Play a step of a range of environments without writing its results."""
        stop = self.num_envs if stop is None else stop
        if not self._was_reset[first:stop].all():
            raise self._closed_error() if self.closed else ResetNeeded("call reset before step")
        self._run(self.loops.play, self._checked(actions), first, stop)

    def _final_obs(self, out: Any, over: Array) -> Array:
        finals = np.full(self.num_envs, None, object)
        for i, observation in enumerate(iterate(self.observation_space, out.finals)):
            if over[i]:
                finals[i] = plain(observation)
        return finals

    # ---------------------------------------------------------------- attributes

    def get_attr(self, name: str) -> list[Any]:
        """Return an attribute of each environment, if steps don't change it.

        It must be a number, a text or an array, which is read-only.

        Raises:
            AttributeError: The originals have no such attribute.
            UsageError: Steps change it, or it is something else.
        """
        bare = name.removeprefix("unwrapped.")
        if bare in ("np_random", "np_random_seed"):
            return [*getattr(self, bare)]
        if bare == "spec":
            return [self.spec or self.env.spec] * self.num_envs
        if bare in SHARED:
            return [getattr(self.env, bare)] * self.num_envs
        constant = self._constants.get(bare.partition(".")[0])
        if constant is not False:
            value = look_up(self.env, name)
            if isinstance(value, np.ndarray):
                value = value.copy()
                value.flags.writeable = False  # it is one array for all of them
            elif not isinstance(value, PLAIN):
                constant = False
            if constant:
                return [value] * self.num_envs
        raise self._no_env(name)

    @cached_property
    def _constants(self) -> dict[str, bool]:
        """The attributes of originals, and whether steps leave them unchanged."""
        creator = load_env_creator(self.entry_point)
        with self.quiet(), closing(creator(**self._parameters)) as env:
            (before,) = parts_of(env)
            env.reset(seed=0)
            env.action_space.seed(0)
            for _ in range(100):
                _, _, terminated, truncated, _ = env.step(env.action_space.sample())
                if terminated or truncated:
                    break
            (after,) = parts_of(env)
            return {name: before.get(name) == part for name, part in after.items()}

    def set_attr(self, name: str, values: Any) -> None:
        """Refuse to set an attribute of the environments."""
        raise self._no_env(name)

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Return an attribute, as :meth:`get_attr`; refuse to call a method."""
        return self.get_attr(name)

    def call_function(self, function: Any, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a function of agym that reads attributes or finds wrappers; refuse all others."""
        if function is get_attribute:
            return self.get_attr(*args)
        if function in (is_wrapped, has_attribute):
            return [function(self.env, *args)] * self.num_envs
        # Those that call a method or set an attribute have its name as an argument.
        raise self._no_env(str((*args, getattr(function, "__name__", function))[0]))

    def _no_env(self, name: str) -> UsageError:
        return UsageError(
            f"the twin of {self._book.name} can't access {name!r} of single environments: use"
            " backend='serial' or 'process'"
        )

    # ---------------------------------------------------------------- snapshots and pictures

    def get_state(self, index: int) -> tuple[Any, ...]:
        """Return a copy of the state of one environment, including its random numbers."""
        generator = self._generators[index]
        random = None if generator is None else generator.bit_generator.state
        return *super().get_state(index), random, self._np_random_seeds[index]

    def set_state(self, index: int, state: tuple[Any, ...]) -> None:
        """Continue one environment from a state."""
        *rest, random, self._np_random_seeds[index] = state
        super().set_state(index, tuple(rest))
        if random is not None:
            generator = np.random.Generator(np.random.PCG64(0))
            generator.bit_generator.state = random
            self._generators.put(index, generator)

    def __reduce__(self) -> tuple[Any, ...]:
        states = [] if self.closed else [self.get_state(i) for i in range(self.num_envs)]
        names = {"closed", "spec", "verdict", "action_space"}
        attributes = {name: vars(self)[name] for name in names & vars(self).keys()}
        num_envs, _, *arguments = self._arguments
        return (
            remade,
            (type(self), (num_envs, *arguments, self._chain), self._parameters, states),
            attributes,
        )

    def render(self, env_ids: Array | None = None) -> Any:
        """Render environments in ``render_mode``, all by default; return ``None`` without one."""
        if self.render_mode is None:
            return None
        ids = range(self.num_envs) if env_ids is None else env_ids.tolist()
        return tuple(map(self._picture, ids))

    def _picture(self, i: int) -> Any:
        self.loops.family.pose(i)
        return self.original.render()

    def close_extras(self, **kwargs: Any) -> None:
        super().close_extras(**kwargs)
        self.original.close()


def plain(observation: Any) -> Any:
    """Return an observation as Gymnasium's environments do: numbers of discrete spaces are ints."""
    if isinstance(observation, tuple):
        return tuple(map(plain, observation))
    return observation.copy() if np.ndim(observation) else int(observation)


def converted(infos: dict[str, Any]) -> dict[str, Any]:
    """Return infos with Gymnasium's dtypes: those of the first environment with the key."""
    columns = {}
    for key, column in infos.items():
        columns[key] = column
        if isinstance(column, dict):
            columns[key] = converted(column)
        elif column.dtype.hasobject:
            mask = infos[f"_{key}"]
            columns[key] = np.zeros(column.shape, np.asarray(column[mask.argmax()]).dtype)
            columns[key][mask] = column[mask]
    return columns


def remade(cls: type[Twin], arguments: Any, parameters: Any, states: list[Any]) -> Twin:
    """Return the copy of a pickled twin."""
    envs = cls(*arguments, **parameters)
    for i, state in enumerate(states):
        envs.set_state(i, state)
    return envs


class ExactEngine(CompiledEngine):
    """Runs compiled rules, which compute with wider numbers than the originals' actions."""

    def __init__(self, book: RuleBook, num_envs: int, *rest: Any) -> None:
        super().__init__(book, num_envs, *rest)
        self._range, self._dtype = (0, num_envs), book.action_space.dtype

    def _run_ranges(self, kernel: Any, arguments: tuple[Any, ...]) -> None:
        kernel(*self._arrays, *arguments, *self._range)

    def begin(self, mask: Array) -> None:
        self._range = 0, self._num_envs
        super().begin(mask)

    def show(self, out: Outputs) -> Array | None:
        """Write the results of the last step of the range."""
        self._write(out)
        if self._mode == NEXT_STEP:
            return None
        over, inside = np.zeros(self._num_envs, bool), slice(*self._range)
        over[inside] = out.terminated[inside] | out.truncated[inside]
        return over

    def play(self, actions: Array, first: int, stop: int) -> None:  # type: ignore[override]
        """Step the environments ``first:stop``."""
        self._range = first, stop
        precise = actions.dtype == np.float64
        if "precise" in (self._book.state.names or ()):
            self.states["precise"][first:stop] = precise
        if not precise:
            actions = actions.astype(self._dtype, copy=False)
        wide = np.float64 if actions.dtype.kind == "f" else np.int64
        super().play(np.require(actions, wide, ["C", "W"]))


class CompiledTwin(Twin):
    """Many environments whose rules are compiled; the address of a generator is the game's key."""

    kind = "compiled"

    def _own_engine(self, limit: int | None, mode: int) -> Any:
        book = replace(
            RuleBook.of(self.family), name=type(self.original).__name__,
            observation_space=self.original.observation_space,
            action_space=self.original.action_space,
        )  # fmt: skip
        return ExactEngine(
            book, self.num_envs, book.blanks(self.num_envs, self._parameters), limit, mode
        )

    def _mask(self, options: dict[str, Any] | None) -> Array:
        for name in BOUNDS.intersection(options or ()):
            raise UsageError(
                f"options[{name!r}]: the twin of {self._book.name} can't change where"
                " episodes begin: use backend='serial' or 'process'"
            )
        return super()._mask(options)

    def _seed(self, mask: Array, seeds: Sequence[int | None]) -> None:
        super()._seed(mask, seeds)
        self._tell_addresses(np.flatnonzero(mask))

    def set_state(self, index: int, state: tuple[Any, ...]) -> None:
        super().set_state(index, state)
        if self._generators[index] is not None:
            self._tell_addresses(np.array([index]))

    def _tell_addresses(self, ids: Array) -> None:
        self.loops.seed(ids, np.array(self._generators.addresses, np.int64)[ids])

    def _picture(self, i: int) -> Any:
        state = self.states[i]
        original: Any = self.original
        original.state = np.array(state.tolist()[: self.family.size])
        if "last_u" in state.dtype.names:  # pendulums show the last torque
            original.last_u = None if np.isnan(state["last_u"]) else state["last_u"]
        return self.original.render()
