"""Pickles for other processes: by name what they can import, by value what they cannot.

cloudpickle sends what is in ``__main__`` by value, and takes every other module that is loaded here
for one that can be imported elsewhere. Two kinds cannot: the script of a process that
multiprocessing started (``__mp_main__``), and a module that was loaded from a path and that no
``import`` finds. Both go by value too, and so do the objects in such modules that an ``EnvSpec``
names by a string (``"__main__:MyEnv"``).
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
from gymnasium.envs.registration import EnvSpec

# Every process has its own, whatever it is that another one finds under this name.
_SCRIPTS = ("__main__", "__mp_main__")


class ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """cloudpickle's, which also knows what cannot be imported elsewhere."""

    def reducer_override(self, obj: Any) -> Any:
        """Look at the module of a function or class, and at the names in an ``EnvSpec``."""
        if isinstance(obj, type | types.FunctionType | types.ModuleType):
            _check_module(obj)
        elif isinstance(obj, EnvSpec) and (named := _named_objects(obj)):
            return _restore_spec, (named, *obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)[:3])
        return super().reducer_override(obj)


def dumps_by_value(
    value: Any, buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None
) -> bytes:
    """Pickle for a process that has neither this one's ``__main__`` nor what it loaded by path.

    Raises:
        Exception: There is something in it that cannot be pickled.
    """
    file = io.BytesIO()
    ByValuePickler(file, pickle.HIGHEST_PROTOCOL, buffer_callback).dump(value)
    return file.getvalue()


def is_importable(name: str) -> bool:
    """Whether an ``import`` elsewhere finds the module that is loaded here under a name."""
    if name in _SCRIPTS:
        return False
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    file = getattr(spec, "origin", None) or getattr(module, "__file__", None)
    if not isinstance(file, str) or (spec is not None and spec.name != name):
        return True  # it is built in, or made by another one, as `six.moves` is
    parent = name.rpartition(".")[0]
    if parent and not is_importable(parent):
        return False
    folders = getattr(sys.modules.get(parent), "__path__", ()) if parent else sys.path
    return _finds(name, file, tuple(map(str, folders)))


@functools.cache
def _finds(name: str, file: str, folders: tuple[str, ...]) -> bool:
    """Whether a module that is a file is found as that.

    Cached, since it looks into folders; what is in these changes too seldom to matter here.
    """
    path = Path(file)
    if path.suffix != ".py" or not path.is_file():
        return True  # nothing that could be sent by value
    place = path.parent if path.name == "__init__.py" else path.with_suffix("")
    # It need not be the first there: Ray, for one, puts a folder before all others.
    if place.name == name.rpartition(".")[2] and place.parent in map(Path, folders):
        return True
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, folders if "." in name else None)
        except Exception:
            return True  # a finder of the user's own, which fails in its own way
        if spec is not None:
            return spec.origin is not None and Path(spec.origin) == path
    return False


def _check_module(obj: Any) -> None:
    """Have cloudpickle send the module of an object by value, for good, if it has to be sent."""
    name = obj.__name__ if isinstance(obj, types.ModuleType) else getattr(obj, "__module__", None)
    if isinstance(name, str) and name != "__main__" and not is_importable(name):
        module = sys.modules[name]
        if getattr(module, "__name__", None) == name:
            cloudpickle.register_pickle_by_value(module)


def _named_objects(spec: EnvSpec) -> dict[str, Any]:
    """What a spec names by strings that lead nowhere in another process, by these strings."""
    names = [spec.entry_point, spec.vector_entry_point]
    names += [wrapper.entry_point for wrapper in spec.additional_wrappers]
    found = {}
    for name in names:
        if isinstance(name, str):
            module, _, attribute = name.partition(":")
            loaded = sys.modules.get(module)
            if hasattr(loaded, attribute) and not is_importable(module):
                found[name] = getattr(loaded, attribute)
    return found


# The names that specs have brought along to this process.
_lent: set[str] = set()


def _restore_spec(
    named: dict[str, Any], make: Callable[..., EnvSpec], args: tuple[Any, ...], state: Any = None
) -> EnvSpec:
    """Put what a spec names where its strings lead to, and make the spec.

    What this process has there of its own stays: a spec may come back to where it was written.
    """
    for name, value in named.items():
        module_name, _, attribute = name.partition(":")
        module = sys.modules.setdefault(module_name, types.ModuleType(module_name))
        if name in _lent or not hasattr(module, attribute):
            _lent.add(name)
            setattr(module, attribute, value)
    spec = make(*args)
    vars(spec).update(state or {})
    return spec
