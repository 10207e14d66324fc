"""Actors know what the program knows: its registry, its script's classes, its modules by path."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.backends.process.test_classes_by_value import check_paths
from tests.core.backends.process.test_imports_that_make import script
from tests.core.backends.process.test_registry_in_workers import check
from tests.support.scripts import run

each_backend = pytest.mark.parametrize(
    "backend", ["agym.backends.Ray()", "agym.backends.Ray(workers_per_node=2)"]
)


@each_backend
@pytest.mark.parametrize(
    "name",
    ["ids that a factory makes", "what cannot be sent concerns only those that make it"],
)
def test_actors_know_the_registry(name: str, backend: str, folder: Path) -> None:
    check(name, backend, folder)


@each_backend
def test_actors_know_modules_by_their_path(backend: str, folder: Path) -> None:
    check_paths(folder, backend)


@each_backend
def test_an_actor_that_imports_cannot_start_others(backend: str, folder: Path) -> None:
    code, _, err, imports = script(folder, "agym.make(Mine, 4, **options)", backend)
    assert (code, imports) == (1, 3), err
    assert "makes environments while it is imported" in err


@each_backend
def test_what_an_actor_cannot_read_is_an_error_of_making(backend: str, folder: Path) -> None:
    code = """
    import agym
    from tests.support.envs.plain_envs import Dice

    class Bad:
        def __reduce__(self):
            return int, ("none",)

    try:
        agym.make(lambda bad=Bad(): Dice(), 2, backend=BACKEND, workers=2)
    except agym.EnvError as error:
        print(error.operation, "invalid literal" in str(error))
    """
    assert run(folder, code.replace("BACKEND", backend), 10) == (0, "make True\n", "")
