"""Agym's own cost: per step, per import, per start."""
