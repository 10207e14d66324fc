"""The laws over actors of two nodes, in each way in which they run environments."""

from __future__ import annotations

import pytest

from agym.backends import Ray
from agym.testing import BackendConformance

pytestmark = pytest.mark.usefixtures("cluster")

# The laws that depend on what runs the environments; an actor takes a second to start.
ABOUT_HOSTS = (
    "batches_of_any_spaces_equal_those_of_serial",
    "infos_equal_those_of_serial",
    "sent_steps_are_received_once",
    "operations_of_one_environment_keep_their_order",
    "who_waits_keeps_nobody_from_being_received",
    "an_environment_that_raises_spoils_no_other",
    "a_fault_ends_one_episode",
    "a_restored_environment_continues_exactly",
    "an_environment_that_raises_in_close_is_reported",
)


class TestRay(BackendConformance):
    backend = "ray"
    worlds_per_law = 1
    examples = 3


class TestRayWithCoroutines(BackendConformance):
    backend = "ray"
    kind = "coroutine"
    only = ABOUT_HOSTS
    worlds_per_law = 1
    examples = 2


class TestRayWithPools(BackendConformance):
    backend = Ray(workers_per_node=2)
    only = ABOUT_HOSTS
    worlds_per_law = 1
    examples = 2
