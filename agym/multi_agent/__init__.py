"""Batches of PettingZoo environments."""
