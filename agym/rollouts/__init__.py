"""Rollouts: what a policy does in many environments."""
