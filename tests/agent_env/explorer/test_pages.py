"""The pages as text: what the policy forbids, what every page has, what is said of trouble."""

import re
from pathlib import Path

import httpx
import pytest

from agent_env.explorer.security import Access
from agent_env.runs import RunIndex
from agent_env.status import RunStatus
from tests.agent_env.explorer.conftest import (
    MakeApp,
    browser_of,
    ended,
    group,
    new_run,
    report,
    running,
)

FOLDER = Path(__file__).parents[3] / "agent_env/explorer"
SCRIPTS = sorted((FOLDER / "static").glob("*.js"))
TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))
PATHS = [
    "/runs", "/runs?sort=-reward&columns=host,seed", "/groups", "/run?id=fine", "/group?id=many",
    "/compare?run=fine&run=broken", "/tasks?since=3650d", "/health", "/run?id=nobody", "/nowhere",
]  # fmt: skip


def some_runs(index: RunIndex) -> None:
    run = new_run("fine", seed={"seed": "7"}, tags={"model": "small"})
    ended(index, "fine", run=run, reward=0.5, scores={"play": 0.5}, reports=(report(score=0.5),))
    ended(index, "broken", RunStatus.FAILED, error_type="StepFailed", error="line one\nline two")
    group(index, "many", 3)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_have_no_script_style_or_handler_in_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:", text) == []
    assert re.findall(r"(?:src|href)=\"(?:https?:)?//", text) == []
    assert "| safe" not in text


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_never_make_html_or_code_of_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert (
        re.findall(r"innerHTML|outerHTML\b(?!\")|insertAdjacentHTML|\beval\(|new Function", text)
        == []
    )


@pytest.mark.parametrize("path", PATHS)
async def test_every_page_has_one_heading_a_title_and_a_place_in_the_bar(
    browser: httpx.AsyncClient, index: RunIndex, path: str
) -> None:
    some_runs(index)

    answer = await browser.get(path)

    assert answer.headers["content-type"].startswith("text/html")
    assert answer.text.count("<h1>") == 1
    assert re.search(r"<title>\S.* · episodes</title>", answer.text)
    assert answer.text.count('aria-current="page"') == (answer.status_code == 200)
    ids = re.findall(r"\sid=\"([^\"]+)\"", answer.text)
    assert len(ids) == len(set(ids))


async def test_rows_are_the_same_alone_as_in_their_list(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    some_runs(index)
    whole = (await browser.get("/runs?columns=seed,host")).text

    alone = (await browser.get("/runs/rows?ids=fine&ids=nobody&columns=seed,host")).text

    body = re.search(r"<tbody.*</tbody>", alone, re.DOTALL)
    assert body is not None
    assert "seed=7" in body[0]
    assert (
        body[0].split()
        == re.findall(r"<tbody(?:(?!</tbody>).)*data-run=\"fine\".*?</tbody>", whole, re.DOTALL)[
            0
        ].split()
    )


async def test_an_address_keeps_its_filters_on_every_link_of_the_list(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    for number in range(3):
        ended(index, f"run-{number}")

    page = (await browser.get("/runs?status=COMPLETED&limit=2&columns=host")).text

    link = re.search(r"rel=\"next\" href=\"([^\"]+)\"", page)
    assert link is not None
    assert {"status=COMPLETED", "limit=2", "columns=host"} <= set(re.split(r"[?&]|amp;", link[1]))


async def test_a_conversation_that_can_not_be_found_is_said_so(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    running(index, "going")

    assert "No turn was recorded yet" in (await browser.get("/run?id=going")).text


async def test_read_only_pages_offer_no_change(make_app: MakeApp, index: RunIndex) -> None:
    running(index, "going")
    group(index, "many", 2)

    async with browser_of(make_app(Access(token=None, read_only=True))) as browser:
        pages = [(await browser.get(path)).text for path in ("/run?id=going", "/group?id=many")]

    assert all("read-only" in page for page in pages)
    assert not any(re.search(r"data-(cancel|again|terminate)", page) for page in pages)


async def test_what_nobody_knows_while_temporal_is_away_is_not_shown_as_fine(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    page = (await browser.get("/health")).text

    rows = dict(re.findall(r'<th scope="row">(\w[\w ]*)</th>\s*<td>(.*?)</td>', page, re.DOTALL))
    assert "✓" in rows["run index"]
    assert "✕" in rows["Temporal"]
    for part in ("workers", "agreement"):
        assert "not known" in rows[part]
        assert "✓" not in rows[part]
