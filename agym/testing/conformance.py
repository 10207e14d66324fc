"""The conformance suite, which agym's and third-party backends must pass.

Subclass :class:`BackendConformance` in a test module, and set the backend::

    class TestMyBackend(BackendConformance):
        backend = MyBackend()
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from agym.api.options.options import BackendLike
from agym.testing.laws import LAWS, Law
from agym.testing.worlds import MODES, Api, Kind, World


class BackendConformance:
    """Checks each law in each world of a backend.

    Attributes:
        backend: The backend, as in :func:`agym.make`.
        workers: Number of workers.
        options: Other options of :func:`agym.make`, such as ``{"timeout": 60.0}``.
        kind: The kind of environments: ``"env"``, ``"coroutine"`` or ``"vector"``.
        only: The names of the laws to check; all if empty.
        worlds_per_law: The number of worlds in which each law is checked, ``None`` for all; use
            fewer for a backend that starts slowly.
        examples: The number of spaces that are drawn for laws about any spaces.
    """

    backend: ClassVar[BackendLike]
    workers: ClassVar[int | None] = 2
    options: ClassVar[Mapping[str, Any]] = {}
    kind: ClassVar[Kind] = "env"
    only: ClassVar[tuple[str, ...]] = ()
    worlds_per_law: ClassVar[int | None] = None
    examples: ClassVar[int] = 10

    @classmethod
    def worlds(cls) -> Iterator[World]:
        """Both APIs, in all three autoreset modes."""
        apis: tuple[Api, ...] = ("sync", "async")
        for mode, api in itertools.product(MODES, apis):
            yield World(cls.backend, api, mode, cls.kind, cls.workers, cls.options, cls.examples)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make a test of each law in each world."""
        cases = []
        for k, law in enumerate(LAWS.values()):
            worlds = [world for world in self.worlds() if law.applies(world)]
            if worlds and (not self.only or law.name in self.only):
                first = k % len(worlds)  # so that the worlds take turns
                worlds = (worlds[first:] + worlds[:first])[: self.worlds_per_law]
                cases += [pytest.param(law, one, id=f"{law.name}-{one}") for one in worlds]
        metafunc.parametrize(("law", "world"), cases)

    def test(self, law: Law, world: World) -> None:
        """The law holds."""
        law.check(world)
