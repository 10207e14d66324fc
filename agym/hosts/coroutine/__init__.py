"""The host of coroutine environments."""
