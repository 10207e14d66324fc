"""Agym's games of Pong against the Arcade Learning Environment's."""
