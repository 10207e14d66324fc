"""The caller's side: it decides and mutates state, and never awaits and never blocks."""
