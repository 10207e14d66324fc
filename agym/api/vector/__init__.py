"""The API of ``gymnasium.vector.VectorEnv``."""
