"""The conformance kit over actors of two nodes, in each way in which they run environments."""

from __future__ import annotations

from typing import Any

import pytest

from agym.backends import Ray
from agym.testing import BackendConformance

pytestmark = pytest.mark.usefixtures("cluster")


class TestRay(BackendConformance):
    backend = "ray"
    examples = 3


class Some(BackendConformance):
    """Those of its tests that depend on who runs environments: an actor takes a second to start."""

    __test__ = False
    backend = "ray"
    examples = 2

    test_a_constructor_that_raises: Any = None
    test_async_api_equals_sync_api: Any = None
    test_attributes_and_methods: Any = None
    test_bad_actions_are_refused_before_anything_is_sent: Any = None
    test_two_steps_in_flight_are_refused: Any = None

    @pytest.mark.parametrize("mode", ["same_step"])
    def test_batches_equal_those_of_serial(self, mode: str) -> None:
        super().test_batches_equal_those_of_serial(mode)

    @pytest.mark.parametrize("mode", ["next_step"])
    def test_sent_steps_are_received_once(self, mode: str) -> None:
        super().test_sent_steps_are_received_once(mode)

    @pytest.mark.parametrize("operation", ["step"])
    def test_an_environment_that_raises_spoils_no_other(self, operation: str) -> None:
        super().test_an_environment_that_raises_spoils_no_other(operation)


class TestRayWithCoroutines(Some):
    __test__ = True
    coroutines = True


class TestRayWithPools(Some):
    __test__ = True
    backend = Ray(workers_per_node=2)
