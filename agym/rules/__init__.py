"""Rule books: games written once, for one game, and run many at a time in lock-step."""
