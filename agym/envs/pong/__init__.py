"""Pong on a grid of 30 × 40 cells: four implementations of one set of rules."""
