"""Planning: where environments are to live; see ``placing`` for the order of things."""
