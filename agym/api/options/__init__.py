"""The options of ``make`` and its relatives."""
