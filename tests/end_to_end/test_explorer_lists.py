"""The lists of the explorer in a real browser: filters, live changes, keys, narrow screens."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import expect

from agent_env.explorer.server import Explorer
from agent_env.runs import RunIndex
from agent_env.status import RunStatus
from tests.agent_env.explorer.conftest import T0, ended, group, new_run, report, running
from tests.end_to_end.browsing import (
    NEEDS_CHROMIUM,
    browsing,
    live,
    open_page,
    overflow,
    row,
)

pytestmark = NEEDS_CHROMIUM


def rename(folder: Path, table: str, to: str) -> None:
    """Take a table away from under the explorer, or give it back."""
    with closing(sqlite3.connect(folder / "index.sqlite")) as database:
        database.execute(f"ALTER TABLE {table} RENAME TO {to}")


def some_runs(index: RunIndex) -> None:
    ended(index, "fine", reward=0.75, scores={"play": 0.75})
    ended(
        index,
        "broken",
        RunStatus.FAILED,
        error_type="StepFailed",
        error="step 'patch': hunk 2 does not apply",
    )
    running(index, "going", task_id="other")


async def test_a_list_shows_status_reward_and_why_a_run_failed(
    explorer: Explorer, index: RunIndex
) -> None:
    some_runs(index)

    async with browsing(explorer.url) as page:
        await open_page(page, "/runs")

        await expect(row(page, "fine")).to_contain_text("COMPLETED")
        await expect(row(page, "fine")).to_contain_text("0.750")
        await expect(row(page, "broken")).to_contain_text("StepFailed: step 'patch': hunk 2")
        await expect(page.locator("#live-counts")).to_have_text("1 running")


async def test_filters_act_at_once_and_survive_reload_and_back(
    explorer: Explorer, index: RunIndex
) -> None:
    some_runs(index)

    async with browsing(explorer.url) as page:
        await open_page(page, "/runs")
        await page.locator("#status-filter > summary").click()
        await page.get_by_label("FAILED").check()
        await page.wait_for_url("**/runs?status=FAILED")
        await expect(row(page, "fine")).to_have_count(0)
        # The menu that was opened is still open: the page changed under it.
        await expect(page.locator("#status-filter")).to_have_attribute("open", "")
        await page.locator("#text").fill("HUNK")
        await page.wait_for_url("**/runs?status=FAILED&text=HUNK")
        await expect(page.locator("#text")).to_be_focused()

        await page.reload()
        await expect(page.locator("#text")).to_have_value("HUNK")
        await expect(page.locator("#results tbody")).to_have_count(1)
        await page.go_back()
        await page.wait_for_url("**/runs?status=FAILED")
        await expect(page.locator("#text")).to_have_value("")


async def test_a_click_on_a_head_sorts_and_a_column_can_be_chosen(
    explorer: Explorer, index: RunIndex
) -> None:
    for number, reward in enumerate((0.5, 0.9, 0.1)):
        running(index, f"run-{number}")
        ended(index, f"run-{number}", reward=reward, scores={"play": reward})
    first = "#results tbody >> nth=0"

    async with browsing(explorer.url) as page:
        await open_page(page, "/runs")
        await page.get_by_role("link", name="reward").click()
        await expect(page.locator(first)).to_have_attribute("data-run", "run-1")
        await page.get_by_role("link", name="reward").click()
        await expect(page.locator(first)).to_have_attribute("data-run", "run-2")
        await expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "ascending")
        await page.get_by_text("Columns").click()
        await page.get_by_label("host").check()

        await expect(page.get_by_role("columnheader", name="host")).to_be_visible()
        await expect(page.locator(first)).to_contain_text("here")
        assert "sort=reward" in page.url


async def test_a_change_shows_where_the_row_is_and_new_runs_wait(
    explorer: Explorer, index: RunIndex
) -> None:
    running(index, "going")
    running(index, "staying")

    async with browsing(explorer.url) as page:
        await open_page(page, "/runs")
        await live(page)
        await page.get_by_text("Columns").click()
        await page.locator("#text").focus()
        before = await page.locator("#results tbody").evaluate_all("all => all.map(r => r.id)")
        ended(index, "going", reward=1.0, scores={"play": 1.0})
        later = new_run("later", created_at=T0 + timedelta(minutes=1))
        index.open_run(later, host="here", room=1000, at=T0)

        await expect(row(page, "going")).to_contain_text("COMPLETED")
        await expect(page.locator("#newer")).to_have_text("1 new ▲")
        after = await page.locator("#results tbody").evaluate_all("all => all.map(r => r.id)")
        assert after == before
        await expect(page.locator("#text")).to_be_focused()
        await expect(page.locator("details:has(#columns)")).to_have_attribute("open", "")

        await page.locator("#newer").click()
        await expect(row(page, "later")).to_be_visible()
        await expect(page.locator("#newer")).to_be_hidden()


async def test_without_the_stream_changes_are_asked_for(
    explorer: Explorer, index: RunIndex
) -> None:
    running(index, "going")

    async with browsing(explorer.url, may_complain=True) as page:
        await page.route("**/live?*", lambda route: route.abort())
        await open_page(page, "/runs")
        await expect(page.locator("#live-state")).to_have_text("asks every few seconds")
        ended(index, "going")

        await expect(row(page, "going")).to_contain_text("COMPLETED")


async def test_pages_read_and_filter_without_scripts(explorer: Explorer, index: RunIndex) -> None:
    some_runs(index)

    async with browsing(explorer.url, java_script_enabled=False) as page:
        await page.goto("/runs?status=FAILED")
        assert await page.locator("#results tbody").count() == 1
        await page.locator("#text").fill("nothing like it")
        await page.get_by_role("button", name="Filter").click()

        assert "text=nothing" in page.url
        assert await page.get_by_text("No run matches").is_visible()


async def test_everything_in_a_list_is_reached_by_keyboard(
    explorer: Explorer, index: RunIndex
) -> None:
    some_runs(index)

    async with browsing(explorer.url) as page:
        await open_page(page, "/runs")
        await page.keyboard.press("Tab")
        await expect(page.get_by_text("Skip to the content")).to_be_focused()
        await page.keyboard.press("/")
        await expect(page.locator("#text")).to_be_focused()
        await page.keyboard.type("broken")
        await page.wait_for_url("**text=broken")
        await page.locator("#text").blur()
        await page.keyboard.press("j")
        await expect(row(page, "broken").locator("a.row-link")).to_be_focused()
        await page.keyboard.press("Enter")

        await page.wait_for_url("**/run?id=broken")
        await expect(page.locator("h1")).to_contain_text("broken")


async def test_an_empty_list_says_which_of_three_it_is(
    explorer: Explorer, index: RunIndex, tmp_path: Path
) -> None:
    async with browsing(explorer.url, may_complain=True) as page:
        await open_page(page, "/runs")
        await expect(page.locator("#results")).to_contain_text("No run yet")
        await expect(page.locator("#results code")).to_contain_text("episodes run")

        ended(index, "fine")
        await open_page(page, "/runs?status=FAILED")
        await page.get_by_role("link", name="Clear the filters").click()
        await expect(row(page, "fine")).to_be_visible()

        rename(tmp_path, "runs", "gone")
        await open_page(page, "/runs")
        await expect(page.locator("h1")).to_have_text("The run index does not answer")
        rename(tmp_path, "gone", "runs")
        # It looks again by itself.
        await expect(row(page, "fine")).to_be_visible()


async def test_an_empty_list_fills_itself(explorer: Explorer, index: RunIndex) -> None:
    async with browsing(explorer.url) as page:
        await open_page(page, "/runs")
        await live(page)
        running(index, "first")

        await expect(row(page, "first")).to_be_visible()


@pytest.mark.parametrize("width", [360, 1024, 1440])
async def test_no_page_is_wider_than_the_screen(
    explorer: Explorer, index: RunIndex, width: int
) -> None:
    some_runs(index)
    long = "run-" + "x" * 196
    reports = (report("s" * 200), report("check", score=0.5))
    ended(index, long, reward=0.5, reports=reports, error_type="E" * 100, error="word " * 500)
    group(index, "many", 80)
    paths = [
        "/runs", "/groups", "/tasks?since=3650d", "/health", "/group?id=many",
        f"/run?id={long}", f"/compare?run=fine&run=broken&run={long}", "/run?id=nobody",
    ]  # fmt: skip

    async with browsing(explorer.url, width=width, may_complain=True) as page:
        for path in paths:
            await open_page(page, path)
            assert await overflow(page) == 0, path
        await open_page(page, "/runs")
        name = row(page, long).locator(".id")
        # Cut in the middle for the eye, whole for the clipboard.
        assert await name.evaluate("e => e.textContent") == long
        box = await name.bounding_box()
        assert box is not None
        assert box["width"] < width
