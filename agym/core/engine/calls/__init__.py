"""The calls under way: their tickets, what they send, and their deadlines."""
