"""The options of ``make``, ``make_async``, ``make_vec`` and the other functions like these."""
