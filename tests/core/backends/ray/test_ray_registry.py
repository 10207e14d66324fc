"""Actors know what the program knows: its registry, its script's classes, its modules by path."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from tests.support.scripts import run

if TYPE_CHECKING:
    pass


ENVS = """
    import gymnasium as gym
    import agym
    from tests.support.envs import plain_envs

    class Mine(plain_envs.Dice): ...
    class Plus(plain_envs.Plus): ...

    options = {"backend": agym.backends.Ray(workers_per_node=PER_NODE), "workers": 2}
"""


def with_envs(code: str, workers_per_node: int | None) -> str:
    return ENVS.replace("PER_NODE", str(workers_per_node)) + code


pools = pytest.mark.parametrize("workers_per_node", [None, 2])


@pools
def test_the_registry_and_what_cannot_be_imported(
    workers_per_node: int | None, folder: Path
) -> None:
    (folder / "plugin").mkdir()
    (folder / "plugin/plugin.py").write_text("from envs import Mine\nclass Other(Mine): ...\n")
    (folder / "envs.py").write_text(dedent(with_envs("", None)))
    script = """
    import importlib.util, sys

    spec = importlib.util.spec_from_file_location("other", "plugin/plugin.py")
    other = sys.modules["other"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(other)

    wrapper = gym.envs.registration.WrapperSpec("Plus", "__main__:Plus", {"by": 5})
    gym.register("Class-v0", Mine)
    gym.register("String-v0", "__main__:Mine", kwargs={"sides": 6})
    gym.register("Lambda-v0", lambda: Mine(7))
    gym.register("Other-v0", other.Other, kwargs={"sides": 8})
    gym.register("Wrapped-v0", Mine, additional_wrappers=(wrapper,))
    gym.register("Locked-v0", lambda lock=__import__("threading").Lock(): Mine())
    ids = {"Class-v0": 77, "String-v0": 6, "Lambda-v0": 7, "Other-v0": 8, "Wrapped-v0": 82}

    makers = [lambda i=env_id: gym.make(i) for env_id in ids]
    with agym.make([*makers, lambda: other.Other(9)], **options) as envs:
        print(*map(int, envs.reset().observations))
    with agym.make("Wrapped-v0", 2, **options) as envs:
        print(*map(int, envs.reset().observations))
    try:
        agym.make(lambda: gym.make("Locked-v0"), 2, **options)
    except agym.UsageError as error:
        assert "'Locked-v0' cannot be made in a worker" in str(error), error
    else:
        raise AssertionError
    """
    code, out, err = run(folder, with_envs(script, workers_per_node), seconds=10)
    assert (code, out, err) == (0, "77 6 7 8 82 9\n82 82\n", ""), err


@pools
def test_an_actor_that_imports_cannot_start_others(
    workers_per_node: int | None, folder: Path
) -> None:
    module = """
    with open("FOLDER/imports", "a") as file:
        file.write("once\\n")
    envs = agym.make(Mine, 4, **options)
    """.replace("FOLDER", str(folder))
    (folder / "mine.py").write_text(dedent(with_envs(module, workers_per_node)))
    code, out, err = run(folder, "import mine", seconds=10)
    assert (code, out) == (1, ""), err
    assert "makes environments while it is imported" in err
    assert (folder / "imports").read_text().count("once") == 3


@pools
def test_what_an_actor_cannot_read_is_an_error_of_making(
    workers_per_node: int | None, folder: Path
) -> None:
    script = """
    class Bad:
        def __reduce__(self):
            return int, ("none",)

    def make(bad=Bad()):
        return Mine()

    try:
        agym.make(make, 2, **options)
    except agym.EnvError as error:
        print(error.operation, "invalid literal" in str(error))
    """
    assert run(folder, with_envs(script, workers_per_node), seconds=10) == (0, "make True\n", "")
