"""Where hosts live."""
