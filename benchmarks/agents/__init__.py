"""Agents: batched policies, OpenEnv, and fleets of environments."""
