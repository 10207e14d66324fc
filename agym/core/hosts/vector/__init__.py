"""Hosts of one VectorEnv with many environments."""
