"""The calls under way: their tickets, their operations, and their deadlines."""
