"""The cost of rendering, of timelines and of the live page."""
