"""Pong on a grid of 30 × 40 cells, four ways from one rule book."""
