"""Faults at random, and no transition lost."""
