"""agym's cost: per step, per import, per start."""
