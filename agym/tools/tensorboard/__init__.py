"""Logs for TensorBoard."""

from agym.tools.tensorboard.tensorboard import TensorBoard

__all__ = ["TensorBoard"]
