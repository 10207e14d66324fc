"""The ids under which Gymnasium knows the games that ship with agym."""

from __future__ import annotations

import gymnasium

# Two that never miss would play for ever.
LIMIT = 10_000

SINGLE, VECTOR = "agym.envs.pong.single", "agym.envs.pong.vector"


def register_games() -> None:
    """Register them with Gymnasium; nothing of them is imported before one is made."""
    for env_id, name in (("agym/Pong-v0", "Pong"), ("agym/PongRally-v0", "PongRally")):
        gymnasium.register(
            env_id,
            entry_point=f"{SINGLE}:{name}Env",
            vector_entry_point=f"{VECTOR}:{name}VectorEnv",
            max_episode_steps=LIMIT,
        )
