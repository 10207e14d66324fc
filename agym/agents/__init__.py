"""Environments for agents, between libraries and across the network: OpenEnv and adapters."""
