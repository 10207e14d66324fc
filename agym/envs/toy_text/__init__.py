"""Gymnasium's toy texts as rule books: FrozenLake, CliffWalking and Taxi."""
