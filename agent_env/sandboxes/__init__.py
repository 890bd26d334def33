"""Places where commands run: the contract, and finding a provider by its type."""

from agent_env.sandboxes.base import ExecResult, Sandbox, SandboxProvider, SandboxSpec
from agent_env.sandboxes.providers import Providers

__all__ = ["ExecResult", "Providers", "Sandbox", "SandboxProvider", "SandboxSpec"]
