import asyncio
from typing import Any, NoReturn

import pytest

from agent_env.errors import ConfigError, UnavailableError
from agent_env.explorer import temporal
from agent_env.explorer.links import Links
from agent_env.explorer.temporal import Temporal


async def test_a_server_that_does_not_answer_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = 0

    async def away() -> NoReturn:
        nonlocal asked
        asked += 1
        raise UnavailableError("away")

    found = Temporal(away)
    for _ in range(3):
        with pytest.raises(UnavailableError, match="away"):
            await found.client()

    assert asked == 1
    assert found.trouble == "away"
    monkeypatch.setattr(temporal, "_LEFT_ALONE_S", 0.0)
    with pytest.raises(UnavailableError):
        await found.client()
    assert asked == 2


async def test_nobody_waits_for_a_server_that_hangs() -> None:
    async def hangs() -> Any:
        await asyncio.Event().wait()

    found = Temporal(hangs, answer_s=0.05)

    with pytest.raises(UnavailableError, match=r"has not answered for 0\.05 s"):
        await found.client()


async def test_a_profile_that_can_not_be_read_is_a_server_that_is_away() -> None:
    async def broken() -> NoReturn:
        raise ConfigError("the profile can't be read")

    with pytest.raises(UnavailableError, match="the profile can't be read"):
        await Temporal(broken).client()


def test_a_link_leads_to_the_workflow_in_temporals_ui() -> None:
    links = Links(lambda: "http://127.0.0.1:8233/", namespace=lambda: "mine")

    assert (
        links.workflow("a/b c", "r1", "other")
        == "http://127.0.0.1:8233/namespaces/other/workflows/a%2Fb%20c/r1"
    )
    assert links.workflow("g", None, None) == "http://127.0.0.1:8233/namespaces/mine/workflows/g"
    assert Links(lambda: None, namespace=lambda: None).workflow("g", None, None) is None
