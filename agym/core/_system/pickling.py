"""Pickles for other processes: importable objects by name, others by value.

cloudpickle pickles objects of ``__main__`` by value, and assumes that every other loaded module can
be imported elsewhere. That is wrong for the script of a process that multiprocessing started
(``__mp_main__``) and for modules which were loaded from a path that ``import`` does not search.
Both are pickled by value here, as are objects of such modules that an ``EnvSpec`` names by a string
(``"__main__:MyEnv"``).
"""

from __future__ import annotations

import functools
import io
import operator
import pickle
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
from gymnasium.envs.registration import EnvSpec

# Names under which every process has different modules.
_SCRIPTS = ("__main__", "__mp_main__")


class ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """A cloudpickle pickler that also detects modules which cannot be imported elsewhere."""

    def reducer_override(self, obj: Any) -> Any:
        """Check the module of a function or class, and the names in an ``EnvSpec``."""
        if isinstance(obj, type | types.FunctionType | types.ModuleType):
            _check_module(obj)
        elif isinstance(obj, EnvSpec) and (named := _named_objects(obj)):
            return _restore_spec, (named, *obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)[:3])
        elif isinstance(obj, types.CodeType):
            # From 3.1.3 on, cloudpickle omits the file, and tracebacks would show no source.
            make, arguments = self.dispatch_table[types.CodeType](obj)
            return _restore_code, (make, arguments, obj.co_filename)
        return super().reducer_override(obj)


def _restore_code(
    make: Callable[..., types.CodeType], arguments: tuple[Any, ...], filename: str
) -> types.CodeType:
    return make(*arguments).replace(co_filename=filename)


def dumps(value: Any) -> bytes:
    """Pickle for another process: with the fast pickler if possible, else by value.

    Raises:
        Exception: ``value`` contains an object that cannot be pickled.
    """
    try:
        pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        return dumps_by_value(value)
    return dumps_by_value(value) if names_restored_objects(pickled) else pickled


def dumps_by_value(
    value: Any, buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None
) -> bytes:
    """Pickle for a process that has neither this ``__main__`` nor modules loaded by path.

    Raises:
        Exception: ``value`` contains an object that cannot be pickled.
    """
    file = io.BytesIO()
    ByValuePickler(file, pickle.HIGHEST_PROTOCOL, buffer_callback).dump(value)
    return file.getvalue()


class Preceded:
    """Unpickles to a value, after calling a function in the process where it is unpickled."""

    def __init__(self, value: Any, function: Callable[..., object], *arguments: Any) -> None:
        self._value = value
        self._call = _Call(function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        # A tuple is unpickled in order.
        return operator.itemgetter(1), ((self._call, self._value),)


class _Call:
    """Unpickles to the result of a function."""

    def __init__(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._reduced = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


def is_importable(name: str) -> bool:
    """Return whether ``import`` in another process finds the module loaded here as ``name``."""
    if name in _SCRIPTS or name in _made_modules:
        return False
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    file = getattr(spec, "origin", None) or getattr(module, "__file__", None)
    if not isinstance(file, str) or (spec is not None and spec.name != name):
        return True  # built in, or created by another module, like `six.moves`
    parent = name.rpartition(".")[0]
    if parent and not is_importable(parent):
        return False
    folders = getattr(sys.modules.get(parent), "__path__", ()) if parent else sys.path
    return _finds(name, file, tuple(map(str, folders)))


@functools.cache
def _finds(name: str, file: str, folders: tuple[str, ...]) -> bool:
    """Return whether ``import`` finds a module at the file it was loaded from.

    Cached, because it searches folders, whose contents rarely change.
    """
    path = Path(file)
    if path.suffix != ".py" or not path.is_file():
        return True  # it cannot be pickled by value
    location = path.parent if path.name == "__init__.py" else path.with_suffix("")
    # The folder need not come first on the path: Ray, for example, inserts one before all others.
    if location.name == name.rpartition(".")[2] and location.parent in map(Path, folders):
        return True
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, folders if "." in name else None)
        except Exception:
            return True  # a user's finder, whose failure proves nothing
        if spec is not None:
            return spec.origin is not None and Path(spec.origin) == path
    return False


def _check_module(obj: Any) -> None:
    """Register an object's module with cloudpickle by value, for good, if it is not importable."""
    name = obj.__name__ if isinstance(obj, types.ModuleType) else getattr(obj, "__module__", None)
    if isinstance(name, str) and name != "__main__" and not is_importable(name):
        module = sys.modules[name]
        if getattr(module, "__name__", None) == name:
            cloudpickle.register_pickle_by_value(module)


def _named_objects(spec: EnvSpec) -> dict[str, Any]:
    """Return the objects that a spec names by strings which other processes cannot import."""
    names = [spec.entry_point, spec.vector_entry_point]
    names += [wrapper.entry_point for wrapper in spec.additional_wrappers]
    objects = {}
    for name in names:
        if isinstance(name, str):
            module, _, attribute = name.partition(":")
            loaded = sys.modules.get(module)
            if hasattr(loaded, attribute) and not is_importable(module):
                objects[name] = getattr(loaded, attribute)
    return objects


# The names that unpickled specs have defined in this process, and the modules made for them. No
# file has these modules, so workers of this process get the objects by value, too.
_defined_names: set[str] = set()
_made_modules: set[str] = set()


def names_restored_objects(pickled: bytes) -> bool:
    """Whether a pickle may name an object that a spec has defined here, and perhaps only here.

    Such an object also exists in the program, but not in an actor between the program and its
    worker processes.
    """
    return any(name.partition(":")[0].encode() in pickled for name in _defined_names)


def _restore_spec(
    named: dict[str, Any], make: Callable[..., EnvSpec], args: tuple[Any, ...], state: Any = None
) -> EnvSpec:
    """Define the objects that a spec names, then create the spec.

    Existing definitions of this process are kept: a spec may return to the process that wrote it.
    """
    for name, value in named.items():
        module_name, _, attribute = name.partition(":")
        if module_name not in sys.modules:
            sys.modules[module_name] = types.ModuleType(module_name)
            _made_modules.add(module_name)
        module = sys.modules[module_name]
        if name in _defined_names or not hasattr(module, attribute):
            _defined_names.add(name)
            setattr(module, attribute, value)
    spec = make(*args)
    vars(spec).update(state or {})
    return spec
