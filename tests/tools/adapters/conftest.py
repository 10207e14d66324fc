"""The tests of an adapter need its library; ``.ci/adapters`` installs all of them."""

from __future__ import annotations

import os
from importlib.util import find_spec

LIBRARIES = ("gem", "skyrl_gym", "textarena", "trl", "verifiers")

# With AGYM_ADAPTERS a library that is missing is a failure, and else its tests are not collected.
collect_ignore = [
    f"test_{library}.py"
    for library in LIBRARIES
    if "AGYM_ADAPTERS" not in os.environ and find_spec(library) is None
]
