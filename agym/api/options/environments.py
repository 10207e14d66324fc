"""The ``env`` argument: turns it into one factory per environment."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import gymnasium.error
from gymnasium.envs import registration
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from agym.core._system.extras import how_to_get
from agym.core._system.pickling import is_importable
from agym.core.hosts.async_env import AsyncEnv
from agym.core.hosts.factories import Factory, innermost
from agym.core.protocol.arguments import check_count
from agym.errors import MissingExtraError, UsageError

AnyEnv = gymnasium.Env[Any, Any] | AsyncEnv[Any, Any]
AnyVectorEnv = VectorEnv[Any, Any, Any]
EnvLike = (
    str
    | EnvSpec
    | AnyVectorEnv
    | Callable[..., AnyEnv | AnyVectorEnv]
    | Sequence[Callable[..., AnyEnv]]
)

# Packages that register environments on import, and the extra that installs each, by the namespace
# of the environments.
PROVIDERS = {"ALE": ("ale_py", "atari")}


def make_factories(env: EnvLike, num_envs: int | None, env_kwargs: dict[str, Any]) -> list[Factory]:
    """Return one factory per environment, without calling any.

    Raises:
        UsageError: ``env`` has the wrong type, or is a list whose length is not ``num_envs``.
    """
    if num_envs is not None:
        num_envs = check_count("num_envs", num_envs)
    if isinstance(env, Sequence) and not isinstance(env, str):
        if not env or not all(callable(factory) for factory in env):
            raise UsageError(
                "a list for env must consist of factories: functions that make environments"
            )
        if num_envs not in (None, len(env)):
            raise UsageError(f"num_envs={num_envs} contradicts the list of {len(env)} factories")
        return [partial(factory, **env_kwargs) if env_kwargs else factory for factory in env]
    n = num_envs or 1
    if isinstance(env, str | EnvSpec):
        first = partial(gymnasium.make, find_spec(env), **env_kwargs)
        # Gymnasium's checker tests the first steps of one environment; the others are the same.
        other = partial(first, **{"disable_env_checker": True, **env_kwargs})
        return [first, *[other] * (n - 1)]
    if not callable(env):
        raise UsageError(
            f"env={env!r} must be an id, an EnvSpec, a factory, or a list of factories"
        )
    return [partial(env, **env_kwargs) if env_kwargs else env] * n


def is_vector(env: Any) -> bool:
    """Return whether an object is a vector environment, or a class or ``partial`` making one."""
    env = innermost(env)
    return isinstance(env, VectorEnv) or (isinstance(env, type) and issubclass(env, VectorEnv))


def make_vector_factories(
    env: EnvLike, num_envs: int | None, env_kwargs: dict[str, Any], workers: int | None
) -> list[Factory]:
    """Return one factory, repeated per environment; it makes all environments of a worker at once.

    Raises:
        UsageError: ``env`` does not make vector environments.
    """
    # Imported here, because few programs have vector environments.
    from agym.core.hosts.vector.construction import ExistingFactory, VectorFactory

    if num_envs is not None:
        num_envs = check_count("num_envs", num_envs)
    if isinstance(env, VectorEnv):
        name = type(env).__name__
        if env_kwargs or workers not in (None, 1) or num_envs not in (None, env.num_envs):
            raise UsageError(
                f"this {name} was made with num_envs={env.num_envs}: leave num_envs, workers"
                f" and {', '.join(env_kwargs) or 'other keywords'} out, or pass the class"
            )
        return [ExistingFactory([env])] * env.num_envs
    n = num_envs or 1
    if isinstance(env, str | EnvSpec):
        spec = find_spec(env)
        if spec.vector_entry_point is None:
            raise UsageError(
                f"env={spec.id!r} has no vector_entry_point, which backend='vector' needs: use"
                " backend='process', 'thread' or 'serial'"
            )
        return [VectorFactory(spec, env_kwargs)] * n
    if not callable(env):
        raise UsageError(
            "backend='vector' needs an id, an EnvSpec, a VectorEnv, or a factory with a num_envs="
            f" parameter, not {type(env).__name__}: use backend='process' for a list of factories"
        )
    factory = VectorFactory(env, env_kwargs)
    if not factory.takes("num_envs"):
        raise UsageError(
            f"env={env!r} has no num_envs= parameter, with which backend='vector' makes a"
            " VectorEnv: add it, or use backend='process' for single environments"
        )
    return [factory] * n


def find_spec(env: str | EnvSpec) -> EnvSpec:
    """Look up an id in this process, because workers may not know ids that a script registered.

    ``env`` is an id as in ``gymnasium.make``: also ``"module:Env-v0"``, where importing the module
    registers the id, or without a version, for the latest one.

    Raises:
        UsageError: There is no such environment; the cause is Gymnasium's error.
        MissingExtraError: The package of the environment is not installed.
    """
    if isinstance(env, EnvSpec):
        return env
    module, colon, name = env.rpartition(":")
    if colon and not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"env={env!r} cannot be found: {module!r} is not the name of a module")
    provider = PROVIDERS.get(name.partition("/")[0])
    package = module
    if not module and provider is not None and name not in registration.registry:
        package = provider[0]
    try:
        if package:
            importlib.import_module(package)
        spec = _look_up(name)
    except ImportError as error:
        if provider is not None and package == provider[0]:
            reason = how_to_get(*provider)
            raise MissingExtraError(f"env={env!r} cannot be found: {reason}") from error
        raise UsageError(f"env={env!r} cannot be found: {error}") from error
    except gymnasium.error.Error as error:
        remedy = ""
        if isinstance(error, gymnasium.error.NamespaceNotFound | gymnasium.error.NameNotFound):
            remedy = f" If a package registers it, import that first, or pass 'module:{name}'"
            if module:
                remedy = f" The module {module!r} was imported, but did not register it"
        raise UsageError(f"env={env!r} cannot be found: {error}{remedy}") from error
    return _importing_spec("", {**vars(spec), "module": module}) if module else spec


def _look_up(env_id: str) -> EnvSpec:
    """Find a registered id, or its latest version, as ``gymnasium.make`` does."""
    namespace, name, version = registration.parse_env_id(env_id)
    if version is None:
        latest = registration.find_highest_version(namespace, name)
        if latest is not None:
            latest_id = registration.get_env_id(namespace, name, latest)
            gymnasium.logger.warn(f"Using {latest_id!r}, the latest version of {env_id!r}.")
            env_id = latest_id
    return gymnasium.spec(env_id)


class ImportingSpec(EnvSpec):
    """A spec named ``"module:Env-v0"``: unpickling it imports the module."""

    module: str

    def __reduce__(self) -> tuple[Any, ...]:
        # The module may be importable in this process only.
        module = self.module if is_importable(self.module) else ""
        return _importing_spec, (module, vars(self))


def _importing_spec(module: str, state: dict[str, Any]) -> ImportingSpec:
    """Import a module, if one is named, and make a spec with these attributes."""
    if module:
        importlib.import_module(module)
    spec = ImportingSpec.__new__(ImportingSpec)
    vars(spec).update(state)
    return spec
