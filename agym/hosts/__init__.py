"""Hosts: the only code that calls environments."""
