"""Handles crashes, hangs and exceptions."""
