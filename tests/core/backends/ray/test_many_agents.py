"""Environments with many agents run on a cluster as they do here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

import agym

pytest.importorskip("pettingzoo", reason="the extra `multiagent`")

from agym.multi_agent.find import find
from tests.multi_agent.games import Colony
from tests.multi_agent.plain_loops import compare_aec, compare_parallel

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster


def test_agents_that_act_together_are_a_plain_loop(cluster: Cluster) -> None:
    with agym.make_parallel(Colony, 4, backend="ray", workers=2, nested=True) as envs:
        assert compare_parallel(envs, partial(Colony, nested=True), episodes=8) > 20


def test_turns_are_a_plain_loop(cluster: Cluster) -> None:
    with agym.make_aec("classic/connect_four-v3", 4, backend="ray", workers=2) as envs:
        make = find("classic/connect_four-v3", "aec")
        assert compare_aec(envs, make, episodes=6, min_envs=2) > 20
