"""How crashes, hangs and exceptions are handled."""
