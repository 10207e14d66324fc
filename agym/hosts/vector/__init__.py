"""Hosts of one VectorEnv with many environments: a vector environment or a pool."""
