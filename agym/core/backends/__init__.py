"""Runs hosts: one port per worker, one pool for all workers of a backend."""
