"""A failure once more, from its capsule."""
