"""The compared systems: agym, other runners, and loops without a runner."""
