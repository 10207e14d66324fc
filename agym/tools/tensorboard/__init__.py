"""Where a run is written down for others to look at: TensorBoard."""

from agym.tools.tensorboard.tensorboard import TensorBoard

__all__ = ["TensorBoard"]
