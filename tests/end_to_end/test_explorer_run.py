"""One run and its conversation in a real browser; what agents write stays text."""

import time
from datetime import timedelta

import pytest
from playwright.async_api import Dialog, expect

from agent_env.explorer.server import Explorer
from agent_env.runs import RunIndex
from agent_env.status import RunStatus, StepStatus
from tests.agent_env.explorer.conftest import T0, ended, group, new_run, report, running, say
from tests.end_to_end.browsing import (
    NEEDS_CHROMIUM,
    browsing,
    live,
    open_page,
    serious_findings,
)

pytestmark = NEEDS_CHROMIUM

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


async def test_a_run_shows_each_attempt_of_its_steps_and_what_was_skipped(
    explorer: Explorer, index: RunIndex
) -> None:
    tried = [
        report("play", epoch=epoch, status=StepStatus.FAILED, error_type="StepFailed",
               error=f"exit code {epoch}", retried=epoch < 2,
               started_at=T0 + timedelta(seconds=epoch),
               finished_at=T0 + timedelta(seconds=epoch + 1))
        for epoch in (1, 2)
    ]  # fmt: skip
    skipped = report("score", status=StepStatus.SKIPPED, started_at=None, finished_at=None)
    ended(index, "broken", RunStatus.FAILED, reports=(*tried, skipped), error_type="StepFailed",
          error="step 'play': exit code 2")  # fmt: skip

    async with browsing(explorer.url) as page:
        await open_page(page, "/run?id=broken")

        await expect(page.locator(".cause")).to_have_text("StepFailed: step 'play': exit code 2")
        play = page.locator(".steps tbody", has=page.get_by_role("rowheader", name="play"))
        await expect(play).to_contain_text("attempt 1 of 2, retried")
        await expect(play).to_contain_text("attempt 2 of 2")
        await expect(play.locator("svg.track g")).to_have_count(2)
        score = page.locator(".steps tbody", has=page.get_by_role("rowheader", name="score"))
        await expect(score).to_contain_text("skipped")


async def test_a_run_that_ends_changes_under_the_reader_and_leaves_open_what_was_opened(
    explorer: Explorer, index: RunIndex
) -> None:
    running(index, "going")
    done = report("box", output={"made": "a box"})
    index.record_steps("going", [done], epoch=1, steps_done=1, current_step="play")

    async with browsing(explorer.url) as page:
        await open_page(page, "/run?id=going")
        await live(page)
        await page.get_by_text("output, 3 lines").click()
        await expect(page.locator(".steps tbody").nth(1)).to_contain_text("running")
        ended(index, "going", reports=(done, report("play", score=1.0)), reward=1.0)

        await expect(page.locator("h1 .s-completed")).to_be_visible()
        await expect(page.locator("#said")).to_have_text("This run is now COMPLETED")
        await expect(page.get_by_text('"made": "a box"')).to_be_visible()


async def test_a_button_with_focus_never_becomes_another_under_the_reader(
    explorer: Explorer, index: RunIndex
) -> None:
    running(index, "going")

    async with browsing(explorer.url) as page:
        await open_page(page, "/run?id=going")
        await live(page)
        await page.get_by_role("button", name="Cancel", exact=True).focus()
        ended(index, "going")

        again = page.get_by_role("button", name="Run again")
        await expect(again).to_be_visible()
        await expect(again).not_to_be_focused()
        await expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)


async def test_ten_thousand_messages_are_read_without_waiting(
    explorer: Explorer, index: RunIndex
) -> None:
    ended(index, "talker")
    say(index, "talker", *(f"message number {number}" for number in range(10_000)))

    async with browsing(explorer.url) as page:
        started = time.monotonic()
        await open_page(page, "/run?id=talker")
        await expect(page.get_by_text("10,000 messages")).to_be_visible()
        assert time.monotonic() - started < 10
        assert await page.locator("#talk > li").count() <= 400

        await page.locator("#talk-text").fill("NUMBER 9876")
        await expect(page.locator("#talk > li")).to_have_count(1)
        await expect(page.locator("#talk mark")).to_have_text("number 9876")
        anchor = await page.locator("#talk > li").get_attribute("id")

        # A link to one of the last fetches what is around it, not all before it.
        await page.goto("about:blank")
        await open_page(page, f"/run?id=talker#{anchor}")
        await expect(page.locator(f'[id="{anchor}"]')).to_be_in_viewport()
        assert await page.locator("#talk > li").count() < 1_000
        await page.get_by_role("button", name="From the first message").click()
        await expect(page.locator("#talk > li").first).to_contain_text("message number 0")


async def test_scrolling_on_brings_more_messages(explorer: Explorer, index: RunIndex) -> None:
    ended(index, "talker")
    say(index, "talker", *(f"message number {number}" for number in range(350)))

    async with browsing(explorer.url) as page:
        await open_page(page, "/run?id=talker")
        while not await page.get_by_text("message number 349", exact=True).count():
            await page.locator("#talk > li").last.scroll_into_view_if_needed()

        await expect(page.locator("#talk > li")).to_have_count(350)


async def test_a_conversation_begins_and_goes_on_under_the_reader(
    explorer: Explorer, index: RunIndex
) -> None:
    running(index, "talker")
    said = ["first", "second", "third"]

    async with browsing(explorer.url) as page:
        await open_page(page, "/run?id=talker")
        await live(page)
        await expect(page.get_by_text("No turn was recorded yet.")).to_be_visible()
        for count, text in enumerate(said, 1):
            say(index, "talker", text, first=count - 1)

            await expect(page.locator("#talk > li")).to_have_count(count)
            await expect(page.locator("#talk > li").last).to_contain_text(text)
            await expect(page.locator("#conversation .head")).to_contain_text(f"{count} message")


async def test_text_of_an_episode_is_shown_and_never_run(
    explorer: Explorer, index: RunIndex
) -> None:
    run = new_run(EVIL, task_id=EVIL, run_group_id=EVIL, member_index=0, seed={EVIL: EVIL},
                  tags={EVIL: EVIL})  # fmt: skip
    failed = report(EVIL, status=StepStatus.FAILED, error_type=EVIL, error=EVIL * 30, output=EVIL)
    ended(index, EVIL, RunStatus.FAILED, run=run, reports=(failed,), error_type=EVIL, error=EVIL)
    say(index, EVIL, EVIL, "</li></ol>" + EVIL)
    alerts: list[str] = []

    async def alerted(dialog: Dialog) -> None:
        alerts.append(dialog.message)
        await dialog.dismiss()

    # Without the policy, so that nothing but the escaping keeps it from running.
    async with browsing(explorer.url, ignores_policy=True) as page:
        page.on("dialog", alerted)
        await open_page(page, "/runs")
        await page.locator("#text").fill(EVIL)
        await page.locator(".row-link").first.click()
        await expect(page.locator("h1")).to_contain_text(EVIL)
        await page.locator("#talk-text").fill("onerror")
        await expect(page.locator("#talk mark").first).to_be_visible()
        await page.get_by_role("link", name=EVIL).first.click()
        for path in ("/groups", "/tasks?since=3650d", "/health"):
            await open_page(page, path)
        assert await page.locator("img, main script").count() == 0
    assert alerts == []


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_nothing_keeps_anybody_from_using_the_pages(
    explorer: Explorer, index: RunIndex, theme: str
) -> None:
    group(index, "some", 12)
    ended(index, "some-0001", reward=1.0, reports=(report(score=1.0, output={"a": 1}),))
    failed = report(status=StepStatus.FAILED, error_type="StepFailed", error="exit\ncode 1")
    ended(index, "some-0002", RunStatus.FAILED, reports=(failed,), error_type="StepFailed",
          error="exit\ncode 1")  # fmt: skip
    ended(index, "some-0003", RunStatus.CANCELED, error_type="Canceled", error="wrong model")
    running(index, "going")
    index.request_cancel("going", by="ana", reason="wrong model", at=T0)
    say(index, "some-0001", "hello", "line\n" * 40)
    paths = [
        "/runs", "/groups", "/group?id=some", "/run?id=some-0001", "/run?id=some-0002",
        "/run?id=going", "/compare?run=some-0001&run=some-0002", "/tasks?since=3650d", "/health",
        "/runs?text=nothing", "/run?id=nobody",
    ]  # fmt: skip

    async with browsing(
        explorer.url,
        theme="dark" if theme == "dark" else "light",
        ignores_policy=True,
        may_complain=True,
    ) as page:
        found: dict[str, object] = {}
        for path in paths:
            await open_page(page, path)
            found[path] = await serious_findings(page)
        await open_page(page, "/runs")
        await page.get_by_text("Columns").click()
        found["columns"] = await serious_findings(page)

    assert {path: findings for path, findings in found.items() if findings} == {}
