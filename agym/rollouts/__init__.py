"""Rollouts: a policy acts in many environments, and the transitions are collected."""
