"""The OpenAPI document is true: whatever it allows is never answered with an error of ours."""

from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from agent_env.artifacts import ArtifactStore
from agent_env.explorer.app import ExplorerServices, create_app
from agent_env.runs import RunIndex
from tests.agent_env.explorer.conftest import ADDRESS, CHANGE, ended, group, nowhere

PAGES = ("runs", "groups", "run", "group", "compare", "tasks", "health")
EXAMPLES = 25


async def test_every_page_has_a_twin_that_is_described(browser: httpx.AsyncClient) -> None:
    document = (await browser.get("/openapi.json")).json()

    assert {f"/{page}.json" for page in PAGES} <= set(document["paths"])
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (path, method)
            assert operation.get("description"), (path, method)


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/docs/oauth2-redirect"])
async def test_no_page_of_the_document_loads_from_elsewhere(
    browser: httpx.AsyncClient, path: str
) -> None:
    assert (await browser.get(path)).status_code == 404


def test_whatever_the_document_allows_is_answered_without_an_error_of_ours(
    index: RunIndex, tmp_path: Path
) -> None:
    ended(index, "r")
    group(index, "g", 2)
    store = ArtifactStore(tmp_path / "artifacts")
    app = create_app(ExplorerServices(index=index, connect=nowhere, store=store))
    host = {"host": ADDRESS.removeprefix("http://")}
    document: Any = schemathesis.openapi.from_asgi("/openapi.json", app, headers=host)
    asked: set[str] = set()

    for found in document.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            phases=[Phase.generate],
        )
        def never_fails(case: Any) -> None:
            answer = case.call(headers={**host, **CHANGE})
            asked.add(case.path)

            assert answer.status_code < 500, (case.path, case.query, case.body, answer.text)

        never_fails()

    assert {f"/{page}.json" for page in PAGES} <= asked
