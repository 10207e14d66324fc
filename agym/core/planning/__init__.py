"""Planning: chooses a backend; ``planning/choosing.py`` has the order of steps."""
