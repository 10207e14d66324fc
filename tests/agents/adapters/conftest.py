"""The tests of an adapter need its library; ``.ci/adapters`` installs all of them."""

from __future__ import annotations

import os
from importlib.util import find_spec

# Read when the libraries are imported: no hub is asked for anything, and nothing reports to one.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}

LIBRARIES = ("gem", "skyrl_gym", "textarena", "trl", "verifiers")

# With AGYM_ADAPTERS a library that is missing is a failure, and else its tests are not collected.
AVAILABLE = [
    library for library in LIBRARIES if "AGYM_ADAPTERS" in os.environ or find_spec(library)
]
collect_ignore = [f"test_{library}.py" for library in LIBRARIES if library not in AVAILABLE]
