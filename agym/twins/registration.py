"""Registers the twins, and makes their classes, by the names of the originals' classes."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from agym.core.hosts.vector.twins import register_twin

CLASSIC, TOY, MUJOCO = (
    "gymnasium.envs.classic_control",
    "gymnasium.envs.toy_text",
    "gymnasium.envs.mujoco",
)

# By the entry point of the originals, the module and the name of the family.
FAMILIES = {
    f"{CLASSIC}.cartpole:CartPoleEnv": "classic:CartPole",
    f"{CLASSIC}.acrobot:AcrobotEnv": "classic:Acrobot",
    f"{CLASSIC}.mountain_car:MountainCarEnv": "classic:MountainCar",
    f"{CLASSIC}.continuous_mountain_car:Continuous_MountainCarEnv": "classic:MountainCarContinuous",
    f"{CLASSIC}.pendulum:PendulumEnv": "classic:Pendulum",
    f"{TOY}.frozen_lake:FrozenLakeEnv": "toy_text:Table",
    f"{TOY}.cliffwalking:CliffWalkingEnv": "toy_text:Table",
    f"{TOY}.taxi:TaxiEnv": "toy_text:Taxi",
    f"{TOY}.blackjack:BlackjackEnv": "toy_text:Blackjack",
    f"{MUJOCO}.ant_v5:AntEnv": "mujoco:Ant",
    f"{MUJOCO}.half_cheetah_v5:HalfCheetahEnv": "mujoco:HalfCheetah",
    f"{MUJOCO}.hopper_v5:HopperEnv": "mujoco:Hopper",
    f"{MUJOCO}.humanoid_v5:HumanoidEnv": "mujoco:Humanoid",
    f"{MUJOCO}.humanoidstandup_v5:HumanoidStandupEnv": "mujoco:HumanoidStandup",
    f"{MUJOCO}.inverted_double_pendulum_v5:InvertedDoublePendulumEnv": "mujoco:InvertedDoublePendulum",  # noqa: E501
    f"{MUJOCO}.inverted_pendulum_v5:InvertedPendulumEnv": "mujoco:InvertedPendulum",
    f"{MUJOCO}.pusher_v5:PusherEnv": "mujoco:Pusher",
    f"{MUJOCO}.reacher_v5:ReacherEnv": "mujoco:Reacher",
    f"{MUJOCO}.swimmer_v5:SwimmerEnv": "mujoco:Swimmer",
    f"{MUJOCO}.walker2d_v5:Walker2dEnv": "mujoco:Walker2d",
}  # fmt: skip


ENTRY_POINTS = {entry_point.partition(":")[2]: entry_point for entry_point in FAMILIES}


def register_twins() -> None:
    """Register the twins that come with agym."""
    for name, entry_point in ENTRY_POINTS.items():
        register_twin(entry_point, f"{__name__}:{name}")


@cache
def twin_class(name: str) -> Any:
    """Return the class of the twins of a class of Gymnasium; imports what it needs."""
    module, family_name = FAMILIES[ENTRY_POINTS[name]].split(":")
    family = getattr(import_module(f"agym.twins.{module}"), family_name)
    twins = import_module("agym.twins.twin")
    parts = {
        "entry_point": ENTRY_POINTS[name], "family": family, "__doc__": family.__doc__,
        "__module__": __name__, "min_envs": getattr(family, "min_envs", 2),
    }  # fmt: skip
    return type(name, (twins.CompiledTwin if module == "classic" else twins.Twin,), parts)


def __getattr__(name: str) -> Any:
    if name in ENTRY_POINTS:
        return twin_class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
