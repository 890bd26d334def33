"""What an agent can do in its turn: tools in its sandbox, and those of MCP servers."""

from agent_env.tools.base import Tool, ToolAnswer, ToolSpec
from agent_env.tools.sandbox import sandbox_tools

__all__ = ["Tool", "ToolAnswer", "ToolSpec", "sandbox_tools"]
