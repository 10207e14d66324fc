"""The only code that touches environments."""
