"""Reads a rule book: checks the parts of a class or module that a user wrote.

It also checks batches of actions, and widens them to the 64 bits in which rules compute.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from agym.core.protocol.typing import Array
from agym.errors import UsageError
from agym.rules import kernels
from agym.rules.rng import Rng

# The parts that a rule book must have, and its functions.
NEEDED = ("state", "observation_space", "action_space", "reset", "step", "observe")
FUNCTIONS = ("reset", "step", "observe", "truncated", "info")

# The names of agym.vectorize's options, which a parameter of rules cannot have.
OPTIONS = (
    "rules", "num_envs", "engine", "autoreset_mode", "max_episode_steps", "copy", "render_mode",
)  # fmt: skip

# Kinds of numbers for which Python and compiled code compute the same.
KINDS = "bool, int8 to int64 and float64"

FIXED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True, eq=False)
class RuleBook:
    """A checked rule book.

    Attributes:
        name: The name, for messages.
        state: The aligned dtype of a game.
        observation_space: Observation space of one game.
        action_space: Action space of one game.
        functions: The functions by name; for missing ones, the functions of ``kernels.py``.
        parameters: Fields of the state that a reset does not clear, with their defaults.
        info_dtype: The dtype of an info, ``bool`` if there are none.
        max_episode_steps: Steps after which an episode is truncated, ``None`` for no limit.
        metadata: As in ``gymnasium.Env``.
        rng: The class of the argument ``rng``.
        rules: The class or module.
    """

    name: str
    state: np.dtype[Any]
    observation_space: Space[Any]
    action_space: Space[Any]
    functions: Mapping[str, FunctionType]
    parameters: Mapping[str, Any]
    info_dtype: np.dtype[Any]
    max_episode_steps: int | None
    metadata: dict[str, Any]
    rng: type[Any]
    rules: Any = field(repr=False)

    @classmethod
    def of(cls, rules: Any) -> RuleBook:
        """Check a class or module of rules.

        Raises:
            UsageError: A part is missing or has the wrong type.
        """
        name = rules.__name__
        missing = [part for part in NEEDED if not hasattr(rules, part)]
        if missing:
            raise UsageError(
                f"the rules {name} have no {missing[0]}: they need {', '.join(NEEDED)}"
            )
        functions = {part: _function(rules, part) for part in FUNCTIONS}
        state = _numbers(f"{name}.state", rules.state)
        info_dtype = np.dtype(np.bool_)
        if hasattr(rules, "info") != hasattr(rules, "info_dtype"):
            raise UsageError(f"the rules {name} must have both info and info_dtype, or neither")
        if hasattr(rules, "info"):
            info_dtype = _numbers(f"{name}.info_dtype", rules.info_dtype, exact=False)
        for part in ("observation_space", "action_space"):
            space = getattr(rules, part)
            if not isinstance(space, FIXED):
                raise UsageError(
                    f"{name}.{part} is {space!r}: it must be a Box, Discrete, MultiDiscrete or"
                    " MultiBinary"
                )
        parameters = dict(getattr(rules, "parameters", {}))
        for parameter in parameters:
            if parameter in OPTIONS:
                raise UsageError(
                    f"{name}.parameters has {parameter!r}, which is an option of agym.vectorize:"
                    " use another name"
                )
            if parameter not in (state.names or ()):
                raise UsageError(
                    f"{name}.parameters has {parameter!r}, which is not a field of {name}.state:"
                    " add it"
                )
        modes = {"render_modes": ["rgb_array"] if hasattr(rules, "render") else []}
        return cls(
            name, state, rules.observation_space, rules.action_space, functions, parameters,
            info_dtype, getattr(rules, "max_episode_steps", None),
            {**modes, **getattr(rules, "metadata", {})}, getattr(rules, "rng", Rng), rules,
        )  # fmt: skip

    @property
    def replaced(self) -> dict[Any, Any]:
        """Maps the stand-ins in ``kernels.py`` to the functions of the rules."""
        functions = {getattr(kernels, name): part for name, part in self.functions.items()}
        return {**functions, Rng: self.rng}

    def blanks(self, num_envs: int, values: Mapping[str, Any]) -> Array:
        """Return the state before an episode starts: the parameters, and zero everywhere else.

        Args:
            num_envs: Number of games.
            values: Parameters: a value for all games, or one per game.

        Returns:
            One state for all games, of shape ``(1,)``, or one per game, ``(num_envs,)``.

        Raises:
            UsageError: There is no such parameter, or its value is invalid.
        """
        unknown = [name for name in values if name not in self.parameters]
        if unknown:
            known = ", ".join(self.parameters) or "none"
            raise UsageError(
                f"{self.name} has no parameter {unknown[0]!r}: its parameters are {known}"
            )
        values = {**self.parameters, **values}
        check = getattr(self.rules, "check", None)
        arrays = {name: self._fitting(name, value, num_envs) for name, value in values.items()}
        per_game = any(len(array) > 1 for array in arrays.values())
        if check is not None:
            for row in range(num_envs if per_game else 1):
                of_game = {name: array[row % len(array)] for name, array in arrays.items()}
                try:
                    check(**{n: v.item() if v.ndim == 0 else v for n, v in of_game.items()})
                except ValueError as error:
                    raise UsageError(f"{self.name}: {error}") from error
        blanks = np.zeros(num_envs if per_game else 1, self.state)
        for name, array in arrays.items():
            blanks[name] = array
        return blanks

    def picture(self, state: Any, mode: str) -> Any:
        """Render a game in one of the modes of ``metadata``."""
        render = self.rules.render
        several = len(inspect.signature(render).parameters) > 1
        return render(state, mode) if several else render(state)

    def _fitting(self, name: str, value: Any, num_envs: int) -> Array:
        """Return a parameter as an array with one row, or one per game."""
        dtype, shape = self.state[name].base, self.state[name].shape
        try:
            original = np.asarray(value)
            if original.dtype.kind == "f" and np.isnan(original).any():
                raise ValueError("nan is not a number")
            with np.errstate(invalid="ignore"):  # an infinity as an integer is refused below
                array = original.astype(dtype)
            if original.dtype.kind not in "biuf" or not np.array_equal(array, original):
                raise ValueError(f"it is not {dtype}")
            if array.shape not in (shape, (num_envs, *shape)):
                raise ValueError(f"its shape is {array.shape}")
        except (TypeError, ValueError, OverflowError) as error:
            rows = f" or {(num_envs, *shape)}, a row per game" if num_envs > 1 else ""
            raise UsageError(
                f"{self.name}: {name}={value!r} is invalid ({error}): use {dtype} of shape"
                f" {shape}{rows}"
            ) from error
        return array if array.shape != shape else array[None]


def find_rules(rules: Any) -> Any:
    """Return the class or module of rules, which may be given by its name.

    Raises:
        UsageError: There is no such class or module, or ``rules`` is something else.
    """
    if isinstance(rules, str):
        module_name, _, name = rules.partition(":")
        try:
            module = importlib.import_module(module_name)
            rules = getattr(module, name) if name else module
        except (ImportError, AttributeError, ValueError) as error:
            raise UsageError(f"rules={rules!r} cannot be found: {error}") from error
    if not isinstance(rules, type | ModuleType):
        raise UsageError(
            f"rules={rules!r} must be a class or a module of plain functions, not"
            f" {type(rules).__name__}"
        )
    return rules


def _function(rules: Any, part: str) -> FunctionType:
    """Return a function of the rules, or its default, which does nothing."""
    default = getattr(kernels, part)
    function, arguments = getattr(rules, part, default), inspect.signature(default).parameters
    if not isinstance(function, FunctionType):
        raise UsageError(
            f"{rules.__name__}.{part} must be a plain function of ({', '.join(arguments)}), not"
            f" {type(function).__name__}"
        )
    if len(inspect.signature(function).parameters) != len(arguments):
        raise UsageError(
            f"{rules.__name__}.{part}{inspect.signature(function)} must have the parameters"
            f" ({', '.join(arguments)}), without self"
        )
    return function


def _numbers(where: str, dtype: Any, exact: bool = True) -> np.dtype[Any]:
    """Check the fields of a structured dtype; return it aligned.

    Args:
        where: The name of the part, for messages.
        dtype: A structured dtype, or an argument that ``np.dtype`` accepts.
        exact: Whether rules compute with the fields, and do not only write them.
    """
    try:
        dtype = np.dtype(dtype)
    except TypeError as error:
        raise UsageError(f"{where} must be a structured numpy.dtype: {error}") from error
    if not dtype.names:
        raise UsageError(f"{where} must be a structured numpy.dtype with fields, not {dtype}")
    for name in dtype.names:
        if name.startswith("_"):
            raise UsageError(f"the field {name!r} of {where} must not start with an underscore")
        base, shape = dtype[name].base, dtype[name].shape
        known = base.kind in "bi" or base == np.float64 or (not exact and base.kind in "uf")
        if not known or not base.isnative:
            raise UsageError(
                f"the field {name!r} of {where} is {base}: use one of {KINDS}, whose arithmetic is"
                " the same in Python and in compiled code"
            )
        if shape and base == np.bool_:
            raise UsageError(
                f"the field {name!r} of {where} is an array of bool, which numba does not support:"
                " use int8"
            )
    fields = [(name, dtype[name].base, dtype[name].shape) for name in dtype.names]
    return np.dtype(fields, align=True)


# ---------------------------------------------------------------- actions


def no_actions(book: RuleBook, num_envs: int) -> Array:
    """Return a batch of zero actions as the engines need it, ``float64`` or ``int64``."""
    space = book.action_space
    assert space.shape is not None
    assert space.dtype is not None
    wide = np.float64 if space.dtype.kind == "f" else np.int64
    return np.zeros((num_envs, *space.shape), wide)


def action_check(book: RuleBook, num_envs: int) -> Callable[[Any], Array]:
    """Return a function that checks a batch of actions, and returns it as the engines need it.

    As in Gymnasium's environments, actions outside of a box are accepted: rules clip them.
    """
    like, space = no_actions(book, num_envs), book.action_space
    shape, dtype, kinds = like.shape, like.dtype, "iu" if like.dtype == np.int64 else "iuf"
    if isinstance(space, spaces.MultiBinary):
        kinds += "b"
    low, count = _range(space)
    expected = f"{space}" if num_envs == 1 else f"{num_envs} of {space}"

    def check(actions: Any) -> Array:
        array = np.asarray(actions)
        if array.shape != shape or array.dtype.kind not in kinds:
            raise UsageError(
                f"{book.name}: actions of shape {array.shape} and dtype {array.dtype} must be"
                f" {expected}: of shape {shape}"
            )
        # Kernels are compiled for writable arrays.
        array = np.require(array, dtype, ["C", "W"])
        # As an unsigned number, a negative difference is large: one comparison checks both bounds.
        if count is not None and ((array - low).view(np.uint64) >= count).any():
            raise UsageError(f"{book.name}: actions {actions!r} must be {expected}")
        return array

    def check_discrete(actions: Any) -> Array:
        """Check the most common kind of actions, in a third of the time."""
        if type(actions) is not np.ndarray or actions.dtype != np.int64 or actions.shape != shape:
            return check(actions)
        if actions.view(np.uint64).max() >= count or not actions.flags.carray:
            return check(actions)
        return actions

    plain = isinstance(space, spaces.Discrete) and int(space.start) == 0
    return check_discrete if plain else check


def _range(space: Any) -> tuple[Any, Any]:
    """Return the lowest action and the number of them; ``None`` for a box."""
    if isinstance(space, spaces.Discrete):
        return np.int64(space.start), np.uint64(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.astype(np.int64), space.nvec.astype(np.uint64)
    if isinstance(space, spaces.MultiBinary):
        return np.int64(0), np.uint64(2)
    return None, None
