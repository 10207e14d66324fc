"""The caller's side: decides what to send, keeps all state, and never awaits or blocks."""
