"""Agents: batched policies, OpenEnv servers, and event loops that are late."""
