"""Timelines of environments and callers: recording and analysis."""
