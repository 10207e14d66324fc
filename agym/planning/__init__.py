"""Planning: chooses a backend; ``api/auto/choosing.py`` has the order of steps."""
