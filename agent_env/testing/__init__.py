"""Helpers for the tests of those who build on this package.

``agent_env.testing.conformance`` has the tests that every provider passes; it needs pytest.
"""

from agent_env.testing.fakes import FakeSandbox, FakeSandboxProvider

__all__ = ["FakeSandbox", "FakeSandboxProvider"]
