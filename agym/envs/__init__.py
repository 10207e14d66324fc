"""Environments that ship with agym."""
