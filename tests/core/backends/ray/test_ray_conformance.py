"""The laws over actors of two nodes, in each way in which they run environments."""

from __future__ import annotations

import pytest

from agym.backends import Ray
from agym.testing import BackendConformance

pytestmark = pytest.mark.usefixtures("cluster")

# The laws that depend on what runs the environments; an actor takes a second to start.
ABOUT_HOSTS = (
    "batches_of_any_spaces_equal_those_of_serial",
    "a_run_equals_that_of_serial",
    "sent_steps_are_received_once",
    "operations_of_one_environment_keep_their_order",
    "who_waits_keeps_nobody_from_being_received",
    "an_environment_that_raises_spoils_no_other",
    "a_fault_ends_one_episode",
    "a_restored_environment_continues_exactly",
    "an_environment_that_raises_in_close_is_reported",
)
# The laws that depend on how workers live and die, and on how their results travel.
ABOUT_WORKERS = (
    "returned_batches_never_change",
    "views_are_valid_until_the_next_but_one_batch",
    "values_without_a_fixed_size_come_as_they_are",
    "infos_of_earlier_steps_do_not_come_back",
    "frames_come_in_the_order_of_environments",
    "attributes_are_read_and_set",
    "next_step_resets_in_the_step_that_follows",
    "same_step_resets_in_the_step_that_ends_the_episode",
    "a_finished_environment_holds_still",
    "one_snapshot_branches_into_many",
    "an_episode_that_had_ended_is_over_when_it_is_restored",
    "results_are_received_in_the_order_in_which_they_finished",
    "failures_are_received_once",
    "a_cancelled_wait_does_not_cancel_the_step",
    "a_step_in_flight_is_refused_to_others",
    "a_missed_deadline_names_its_environment",
    "a_constructor_that_raises_is_reported",
    "closing_closes_each_environment",
    "closing_ends_all_that_waits",
    "one_environment_can_be_closed",
    "restart_replaces_environments_that_work",
    "a_replaced_environment_goes_on",
    "a_retry_repeats_the_episode",
    "all_environments_may_fail_at_once",
)


class TestRay(BackendConformance):
    backend = "ray"
    only = ABOUT_HOSTS + ABOUT_WORKERS
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
