"""The messages between engine, backends and hosts."""
