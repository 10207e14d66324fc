"""The API of Stable-Baselines3."""
