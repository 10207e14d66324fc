"""Games of agym's own, as rule books."""
