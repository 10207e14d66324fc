"""Where a run is written down for others to look at: TensorBoard."""

from agym.log.tensorboard import TensorBoard

__all__ = ["TensorBoard"]
