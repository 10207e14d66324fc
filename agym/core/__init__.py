"""The colour-free core: it decides and mutates state, and never awaits and never blocks."""
