"""Types that annotations share, and the type variables of agym's generic classes.

Type variables are plural for a batch as the caller sees it, singular for one environment's part.
All default to ``Any``, so a plain ``agym.Envs`` is a complete annotation, as in Gymnasium. Outputs
are covariant and inputs contravariant: environments that take any sequence of actions are also
environments that take lists.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import TypeVar  # typing's has defaults from Python 3.13 on

Array = np.ndarray[Any, Any]
Info = dict[str, Any]

Observations = TypeVar("Observations", covariant=True, default=Any)
Actions = TypeVar("Actions", contravariant=True, default=Any)
Rewards = TypeVar("Rewards", covariant=True, default=Any)
Flags = TypeVar("Flags", covariant=True, default=Any)

Observation = TypeVar("Observation", covariant=True, default=Any)
Action = TypeVar("Action", contravariant=True, default=Any)

# For a single ``gymnasium.Env``, whose type variables are invariant.
EnvObservation = TypeVar("EnvObservation", default=Any)
EnvAction = TypeVar("EnvAction", default=Any)
