"""Registers agym's own environments with Gymnasium."""

from __future__ import annotations

import gymnasium

# Two players that never miss would play for ever.
LIMIT = 10_000

SINGLE, VECTOR = "agym.envs.pong.single", "agym.envs.pong.vector"


def register_games() -> None:
    """Register the games with Gymnasium; their modules are imported when one is made."""
    for env_id, name in (("agym/Pong-v0", "Pong"), ("agym/PongRally-v0", "PongRally")):
        gymnasium.register(
            env_id,
            entry_point=f"{SINGLE}:{name}Env",
            vector_entry_point=f"{VECTOR}:{name}VectorEnv",
            max_episode_steps=LIMIT,
        )
