"""Hosts of one program with many environments: a vector environment or a pool."""
