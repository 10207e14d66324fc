"""The caller's side of agym: decides and changes state, and never awaits or blocks."""
