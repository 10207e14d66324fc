"""Reads a rule book: checks the parts of a class or module that a user wrote.

And checks batches of actions, which it widens to the 64 bits in which rules compute.
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

# What every rule book has, and what one may have.
NEEDED = ("state", "observation_space", "action_space", "reset", "step", "observe")
FUNCTIONS = ("reset", "step", "observe", "truncated", "info")
ARGUMENTS = {
    "reset": ("state", "rng"),
    "step": ("state", "action", "rng"),
    "observe": ("state", "out"),
    "truncated": ("state",),
    "info": ("state", "out"),
}

# Names that agym.vectorize takes for itself.
OPTIONS = (
    "rules", "num_envs", "engine", "autoreset_mode", "max_episode_steps", "copy", "render_mode",
)  # fmt: skip

# Kinds of numbers that computations in Python and in compiled code agree on.
KINDS = "bool, int8 to int64 and float64"

FIXED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True, eq=False)
class RuleBook:
    """A checked rule book.

    Attributes:
        name: Its name, for messages.
        state: The dtype of a game, aligned.
        observation_space: Of one game.
        action_space: Of one game.
        functions: The functions by name, with those of ``kernels.py`` for what is optional.
        parameters: Fields of the state that keep a value, with their defaults.
        info_dtype: The dtype of an info, ``bool`` if there are none.
        max_episode_steps: Steps after which an episode is cut off, ``None`` for no limit.
        metadata: As of ``gymnasium.Env``.
        rules: The class or module itself.
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
    rules: Any = field(repr=False)

    @classmethod
    def of(cls, rules: Any) -> RuleBook:
        """Check a class or module of rules.

        Raises:
            UsageError: A part is missing or of the wrong kind.
        """
        return _read(rules)

    @property
    def replaced(self) -> dict[FunctionType, FunctionType]:
        """The functions of ``kernels.py`` that are stand-ins, and those of the rules."""
        return {getattr(kernels, name): function for name, function in self.functions.items()}

    def blanks(self, num_envs: int, values: Mapping[str, Any]) -> Array:
        """Return the state before an episode begins: zero, but for the parameters.

        Args:
            num_envs: Number of games.
            values: Parameters: a value for all games, or one per game.

        Returns:
            One state for all games, or ``num_envs`` of them, ``(1,)`` or ``(num_envs,)``.

        Raises:
            UsageError: There is no such parameter, or the value does not fit.
        """
        unknown = [name for name in values if name not in self.parameters]
        if unknown:
            known = ", ".join(self.parameters) or "none"
            raise UsageError(
                f"{self.name} has no parameter {unknown[0]!r}: its parameters are {known}"
            )
        given = {**self.parameters, **values}
        check = getattr(self.rules, "check", None)
        arrays = {name: self._fitting(name, value, num_envs) for name, value in given.items()}
        each = any(len(array) > 1 for array in arrays.values())
        if check is not None:
            for row in range(num_envs if each else 1):
                ours = {name: array[row % len(array)] for name, array in arrays.items()}
                try:
                    check(**{n: v.item() if v.ndim == 0 else v for n, v in ours.items()})
                except ValueError as error:
                    raise UsageError(f"{self.name}: {error}") from error
        blanks = np.zeros(num_envs if each else 1, self.state)
        for name, array in arrays.items():
            blanks[name] = array
        return blanks

    def picture(self, state: Any, mode: str) -> Any:
        """Render a game, in a mode that the metadata names."""
        render = self.rules.render
        several = len(inspect.signature(render).parameters) > 1
        return render(state, mode) if several else render(state)

    def _fitting(self, name: str, value: Any, num_envs: int) -> Array:
        """Return a parameter as an array with one row, or one per game."""
        dtype, shape = self.state[name].base, self.state[name].shape
        try:
            given = np.asarray(value)
            if given.dtype.kind == "f" and np.isnan(given).any():
                raise ValueError("nan is not a number")
            with np.errstate(invalid="ignore"):  # infinity in an integer, which is refused below
                array = given.astype(dtype)
            if given.dtype.kind not in "biuf" or not np.array_equal(array, given):
                raise ValueError(f"it is no {dtype}")
            if array.shape not in (shape, (num_envs, *shape)):
                raise ValueError(f"its shape is {array.shape}")
        except (TypeError, ValueError, OverflowError) as error:
            each = f" or {(num_envs, *shape)}, a row per game" if num_envs > 1 else ""
            raise UsageError(
                f"{self.name}: {name}={value!r} does not fit ({error}): give {dtype} of shape"
                f" {shape}{each}"
            ) from error
        return array if array.shape != shape else array[None]


def find_rules(rules: Any) -> Any:
    """Return the class or module that is meant; text names one.

    Raises:
        UsageError: It is neither.
    """
    if isinstance(rules, str):
        module, _, name = rules.partition(":")
        try:
            found = importlib.import_module(module)
            rules = getattr(found, name) if name else found
        except (ImportError, AttributeError, ValueError) as error:
            raise UsageError(f"rules={rules!r} cannot be found: {error}") from error
    if not isinstance(rules, type | ModuleType):
        raise UsageError(
            f"rules={rules!r} must be a class or a module of plain functions, not"
            f" {type(rules).__name__}"
        )
    return rules


def _read(rules: Any) -> RuleBook:
    name = rules.__name__
    missing = [part for part in NEEDED if not hasattr(rules, part)]
    if missing:
        raise UsageError(
            f"the rules {name} have no {missing[0]}: a rule book has {', '.join(NEEDED)}"
        )
    functions = {part: _function(rules, part) for part in FUNCTIONS}
    state = _numbers(f"{name}.state", rules.state)
    info_dtype = np.dtype(np.bool_)
    if hasattr(rules, "info") != hasattr(rules, "info_dtype"):
        raise UsageError(f"the rules {name} need both info and info_dtype, or neither")
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
                f"{name}.parameters names {parameter!r}, which is an option of agym.vectorize: take"
                " another name"
            )
        if parameter not in (state.names or ()):
            raise UsageError(
                f"{name}.parameters names {parameter!r}, which is no field of {name}.state: add it"
            )
    modes = {"render_modes": ["rgb_array"] if hasattr(rules, "render") else []}
    return RuleBook(
        name, state, rules.observation_space, rules.action_space, functions, parameters,
        info_dtype, getattr(rules, "max_episode_steps", None),
        {**modes, **getattr(rules, "metadata", {})}, rules,
    )  # fmt: skip


def _function(rules: Any, part: str) -> FunctionType:
    """Return a function of the rules, or the one that does nothing in its place."""
    function = getattr(rules, part, getattr(kernels, part))
    wanted = ARGUMENTS[part]
    if not isinstance(function, FunctionType):
        raise UsageError(
            f"{rules.__name__}.{part} must be a plain function of ({', '.join(wanted)}), not"
            f" {type(function).__name__}"
        )
    if len(inspect.signature(function).parameters) != len(wanted):
        raise UsageError(
            f"{rules.__name__}.{part}{inspect.signature(function)} must take"
            f" ({', '.join(wanted)}), without self"
        )
    return function


def _numbers(what: str, dtype: Any, exact: bool = True) -> np.dtype[Any]:
    """Return a structured dtype, aligned, after a check of its fields.

    Args:
        what: Its name, for messages.
        dtype: A structured dtype, or what makes one.
        exact: Whether rules compute with the fields, and do not only write them.
    """
    try:
        dtype = np.dtype(dtype)
    except TypeError as error:
        raise UsageError(f"{what} must be a structured numpy.dtype: {error}") from error
    if not dtype.names:
        raise UsageError(f"{what} must be a structured numpy.dtype with fields, not {dtype}")
    for name in dtype.names:
        if name.startswith("_"):
            raise UsageError(f"the field {name!r} of {what} must not begin with an underscore")
        base, shape = dtype[name].base, dtype[name].shape
        known = base.kind in "bi" or base == np.float64 or (not exact and base.kind in "uf")
        if not known or not base.isnative:
            raise UsageError(
                f"the field {name!r} of {what} is {base}: take one of {KINDS}, whose arithmetic is"
                " the same in Python and in compiled code"
            )
        if shape and base == np.bool_:
            raise UsageError(
                f"the field {name!r} of {what} is an array of bool, which numba does not know: take"
                " int8"
            )
    fields = [(name, dtype[name].base, dtype[name].shape) for name in dtype.names]
    return np.dtype(fields, align=True)


# ---------------------------------------------------------------- actions


def no_actions(book: RuleBook, num_envs: int) -> Array:
    """Return a batch of actions as the engines take it, ``float64`` or ``int64``."""
    space = book.action_space
    assert space.shape is not None
    assert space.dtype is not None
    wide = np.float64 if space.dtype.kind == "f" else np.int64
    return np.zeros((num_envs, *space.shape), wide)


def action_check(book: RuleBook, num_envs: int) -> Callable[[Any], Array]:
    """Return a function that checks a batch of actions, and returns it as the engines take it.

    What is outside of a box is not refused, as in Gymnasium's environments: rules clip it.
    """
    like, space = no_actions(book, num_envs), book.action_space
    shape, dtype, kinds = like.shape, like.dtype, "iu" if like.dtype == np.int64 else "iuf"
    if isinstance(space, spaces.MultiBinary):
        kinds += "b"
    low, count = _range(space)
    what = f"{space}" if num_envs == 1 else f"{num_envs} of {space}"

    def check(actions: Any) -> Array:
        array = np.asarray(actions)
        if array.shape != shape or array.dtype.kind not in kinds:
            raise UsageError(
                f"{book.name}: actions of shape {array.shape} and dtype {array.dtype} must be"
                f" {what}: of shape {shape}"
            )
        # Compiled code is for arrays that may be written to.
        array = np.require(array, dtype, ["C", "W"])
        # Viewed as unsigned, what is below the lowest is large.
        if count is not None and ((array - low).view(np.uint64) >= count).any():
            raise UsageError(f"{book.name}: actions {actions!r} must be {what}")
        return array

    def check_discrete(actions: Any) -> Array:
        """Check the most frequent kind in a third of the time."""
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
