"""Types that annotations share, and the type variables of agym's generic classes.

Type variables are plural for the caller's batch, singular for one environment's part. All default
to ``Any``, so a plain ``agym.Envs`` is a complete annotation, as in Gymnasium. Outputs are
covariant and inputs contravariant: environments that accept any sequence of actions are also
environments that accept lists.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import TypeVar  # the standard library has defaults from Python 3.13 on

Array = np.ndarray[Any, Any]
Info = dict[str, Any]

# The options and the result of one environment's reset, and the result of its step.
Options = dict[str, Any]
Start = tuple[Any, Info]
Result = tuple[Any, float, bool, bool, Info]

Observations = TypeVar("Observations", covariant=True, default=Any)
Actions = TypeVar("Actions", contravariant=True, default=Any)
Rewards = TypeVar("Rewards", covariant=True, default=Any)
Flags = TypeVar("Flags", covariant=True, default=Any)

Observation = TypeVar("Observation", covariant=True, default=Any)
Action = TypeVar("Action", contravariant=True, default=Any)

# For a single ``gymnasium.Env``, whose type variables are invariant.
EnvObservation = TypeVar("EnvObservation", default=Any)
EnvAction = TypeVar("EnvAction", default=Any)
