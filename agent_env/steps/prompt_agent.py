"""Gives an agent its turn: a prompt, tools, and time. The workflow waits for who plays it.

The turn survives every crash and holds no worker while it is open.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import override

from agent_env._model import EdgeModel
from agent_env.errors import StepError
from agent_env.steps._foreign_keys import without
from agent_env.steps.base import Params, Step, StepContext, StepResult
from agent_env.turns import TURN_TIMEOUT

DEFAULT_AGENT = "default-agent"
"""What an agent is called that the task gives no name."""
SANDBOX_TOOLS = ("bash", "read_file", "write_file")
"""What an agent with a sandbox has, unless ``tools`` says otherwise."""
_TEXT_ONLY = "a prompt is text; write it into prompt"
_NOT_HERE = "remove it; whoever plays the turn decides that"
_FOREIGN = {
    "parts": _TEXT_ONLY,
    "output_format": _NOT_HERE,
    "agentenv_tools": "offer tools with tools and mcp_servers",
    "snapshot_config": "remove it; there are no snapshots",
    "model_params": _NOT_HERE,
    "max_thinking_tokens": _NOT_HERE,
    "effort": _NOT_HERE,
    "harness": _NOT_HERE,
    "context_id": "a turn starts a conversation of its own; remove it",
    "user_a2a_url": "remove it; nobody plays a user here",
    "user_model": "remove it; nobody plays a user here",
    "trajectory_output_prefix": "the conversation is in the run index; remove it",
}


class McpServer(EdgeModel):
    """Where tools come from: a program in the sandbox, or an address."""

    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Program and arguments; it runs in the agent's sandbox and speaks over stdin and stdout."""
    env: Mapping[str, str] = {}
    """Added to the sandbox's environment, for a ``command``."""
    url: str | None = Field(default=None, pattern=r"^https?://")
    """Address that speaks streamable HTTP, reached from the worker."""
    headers: Mapping[str, str] = {}
    """Sent with each request to the ``url``."""

    @model_validator(mode="after")
    def _is_one(self) -> "McpServer":
        if (self.command is None) == (self.url is None):
            raise ValueError("give either command, a program in the sandbox, or url")
        if (self.env and self.url) or (self.headers and self.command):
            raise ValueError("env goes with command, and headers go with url")
        return self


class PromptAgentParams(Params):
    """What is asked, of whom, and with which tools."""

    prompt: str = Field(min_length=1)
    """What the agent is asked to do."""
    system_prompt: str | None = None
    """What comes before the prompt."""
    agent_name: str = Field(default=DEFAULT_AGENT, min_length=1)
    """Who is asked: a trainer names the agents that it plays."""
    player: Literal["outside", "model", "command"] | None = None
    """Who plays the turn. ``outside``: a trainer. None: whoever the trainer's spec says."""
    sandbox_name: str | None = None
    """Where the agent works; may be left out when there is one sandbox, or none."""
    tools: tuple[Literal["bash", "read_file", "write_file"], ...] | None = None
    """Tools in the sandbox. None means all of them where there is a sandbox."""
    mcp_servers: Mapping[str, McpServer] = {}
    """Servers whose tools are on offer, too, by name."""
    max_output_bytes: int = Field(default=64 * 1024, ge=1024, le=512 * 1024)
    """What is kept of a tool's output, in bytes."""
    model: str | None = None
    """For a player ``model``. A trainer plays with a model of its own."""
    max_turns: int | None = Field(default=None, ge=1)
    """Most model calls of a player ``model``. A trainer bounds itself."""

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, data: object) -> object:
        return without(data, _FOREIGN)


class PromptAgent(Step[PromptAgentParams]):
    """Ends with the player's reply as its output."""

    type = "prompt_agent"

    @override
    async def run(self, params: PromptAgentParams, ctx: StepContext) -> StepResult:
        """Never called by an episode.

        Raises:
            StepError: always.
        """
        raise StepError("a turn is the workflow's; it can't run in a segment")

    @override
    def timeout(self, params: PromptAgentParams) -> timedelta | None:
        return TURN_TIMEOUT

    @override
    def sandboxes(self, params: PromptAgentParams) -> Sequence[str | None]:
        if params.sandbox_name is not None:
            return (params.sandbox_name,)
        return (None,) if needs_sandbox(params) else ()

    @override
    def may_use_sandbox(self, params: PromptAgentParams) -> bool:
        return params.tools != ()

    @override
    def problems(self, params: PromptAgentParams) -> Sequence[str]:
        if params.mcp_servers and not _has_mcp():
            return ["mcp_servers: need the package mcp; pip install 'durable-episodes[mcp]'"]
        return ()


def needs_sandbox(params: PromptAgentParams) -> bool:
    """Whether it can't do without one."""
    in_sandbox = any(server.command for server in params.mcp_servers.values())
    return bool(params.tools) or in_sandbox


def _has_mcp() -> bool:
    from importlib.util import find_spec

    return find_spec("mcp") is not None


STEP = PromptAgent
