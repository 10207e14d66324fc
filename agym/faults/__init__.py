"""Faults on purpose, and faults again: chaos, and the replay of capsules."""
