"""The environment classes of the rule books that come with agym, built when they are used.

``CartPoleEnv`` is one game of ``classic/cart_pole.py``, ``CartPoleVectorEnv`` many, and so on.
"""

from __future__ import annotations

from typing import Any

from agym.envs.registration import SHIPPED
from agym.rules.contract import find_rules
from agym.rules.env import env_class, vector_env_class

RULES = {game.rules.partition(":")[2]: f"agym.envs.{game.rules}" for game in SHIPPED.values()}


def __getattr__(name: str) -> Any:
    for suffix, make in (("VectorEnv", vector_env_class), ("Env", env_class)):
        book = name.removesuffix(suffix)
        if name.endswith(suffix) and book in RULES:
            cls = make(find_rules(RULES[book]))
            cls.__module__ = __name__  # so that pickle finds it here
            return cls
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
