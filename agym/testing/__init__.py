"""Tests for extensions: agym's laws, and the suite that checks them for a backend."""

from agym.core._system.extras import install_command
from agym.errors import MissingExtraError

try:
    import pytest

    pytest.register_assert_rewrite("agym.testing.laws")  # so that a failed law shows its values
    from agym.testing.conformance import BackendConformance
    from agym.testing.laws import LAWS, Law, assert_same
    from agym.testing.random_env import RandomEnv
    from agym.testing.scripted import AsyncScriptedEnv, Script, ScriptedEnv
    from agym.testing.strategies import any_spaces, boxes, simple_spaces
    from agym.testing.twins import check_twin
    from agym.testing.worlds import AsCoroutine, World
except ImportError as error:
    raise MissingExtraError(f"agym.testing needs: {install_command('test')}") from error

__all__ = [
    "LAWS",
    "AsCoroutine",
    "AsyncScriptedEnv",
    "BackendConformance",
    "Law",
    "RandomEnv",
    "Script",
    "ScriptedEnv",
    "World",
    "any_spaces",
    "assert_same",
    "boxes",
    "check_twin",
    "simple_spaces",
]
