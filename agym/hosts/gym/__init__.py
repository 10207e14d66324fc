"""Gymnasium environments, one after the other."""
