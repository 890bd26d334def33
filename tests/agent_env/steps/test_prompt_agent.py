"""A turn's parameters: what can be asked, and what is refused before the start."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from agent_env.errors import InvalidSpecError, StepError
from agent_env.steps import Steps
from agent_env.steps.prompt_agent import McpServer, PromptAgent, PromptAgentParams
from agent_env.task import Task
from agent_env.testing.step_contract import StepContract


class TestPromptAgent(StepContract):
    step = PromptAgent
    good_params = {"prompt": "do it"}
    bad_params = {"prompt": ""}


def box(name: str) -> JsonValue:
    return {"id": name, "type": "deploy_sandbox", "sandbox_name": name}


def checked(*steps: JsonValue) -> Task:
    return Steps().check(Task.of({"id": "t", "steps": list(steps)}))


def ask(**more: JsonValue) -> JsonValue:
    return {"id": "ask", "type": "prompt_agent", "prompt": "do it", **more}


def test_without_a_sandbox_an_agent_just_talks() -> None:
    assert checked(ask())


def test_the_only_sandbox_needs_no_name() -> None:
    assert checked(box("one"), ask())


def test_of_several_sandboxes_one_is_named() -> None:
    with pytest.raises(InvalidSpecError, match="there are several; name one of 'one', 'two'"):
        checked(box("one"), box("two"), ask())
    assert checked(box("one"), box("two"), ask(sandbox_name="two"))
    assert checked(box("one"), box("two"), ask(tools=[]))


def test_tools_that_are_asked_for_need_a_sandbox() -> None:
    with pytest.raises(InvalidSpecError, match="needs a sandbox"):
        checked(ask(tools=["bash"]))
    with pytest.raises(InvalidSpecError, match="needs a sandbox"):
        checked(ask(mcp_servers={"files": {"command": ["serve"]}}))


@pytest.mark.parametrize(
    "server",
    [
        {},
        {"command": ["a"], "url": "http://a"},
        {"url": "ftp://a"},
        {"url": "http://a", "env": {"A": "1"}},
        {"command": ["a"], "headers": {"A": "1"}},
    ],
)
def test_a_server_is_a_program_or_an_address(server: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"command|url"):
        McpServer.model_validate(server)


def test_what_only_the_other_framework_has_is_refused_with_a_cure() -> None:
    with pytest.raises(InvalidSpecError, match=r"parts: .*write it into prompt"):
        checked(ask(parts=[{"kind": "text", "text": "do it"}]))


async def test_no_segment_runs_it() -> None:
    context: Any = Path()

    with pytest.raises(StepError, match="workflow's"):
        await PromptAgent().run(PromptAgentParams(prompt="do it"), context)
