"""Cancel in a real browser, of an episode that really runs."""

import os
import random
import re
import signal
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
from playwright.async_api import expect

from agent_env._connect import connect_to
from agent_env.embedded import find_running
from agent_env.explorer.server import Explorer
from agent_env.status import RunStatus
from tests.end_to_end.browsing import NEEDS_CHROMIUM, browsing, live, open_page, row, serving
from tests.end_to_end.conftest import Product, processes_with
from tests.end_to_end.stage import box, command, spec

pytestmark = NEEDS_CHROMIUM


@pytest.fixture
async def explorer(product: Product) -> AsyncGenerator[Explorer]:
    async with serving(
        product.index,
        product.state_dir / "artifacts",
        connect=lambda: connect_to(product.server.address),
        temporal_ui=lambda: product.server.ui_url,
        force_after=timedelta(seconds=2),
    ) as explorer:
        yield explorer


def nap() -> str:
    """A command that only one test runs."""
    return f"sleep 1{random.randrange(10**5, 10**6)}"


async def test_cancel_asks_says_so_and_the_process_dies(
    product: Product, explorer: Explorer
) -> None:
    line = nap()
    with product.worker():
        episode = await product.trainer.start(spec(box(), command("nap", line)))
        await product.until(lambda: bool(processes_with(line)))

        async with browsing(explorer.url) as page, browsing(explorer.url) as other:
            await open_page(other, "/runs")
            await live(other)
            await open_page(page, f"/run?id={episode.run_id}")
            await live(page)
            await page.get_by_role("button", name="Cancel", exact=True).click()
            dialog = page.get_by_role("dialog")
            await expect(dialog).to_contain_text(f"Cancel {episode.run_id}?")
            await expect(dialog).to_contain_text("teardown runs")
            await dialog.get_by_role("button", name="Keep running").click()
            assert processes_with(line)
            await page.get_by_role("button", name="Cancel", exact=True).click()
            await page.keyboard.type("wrong model")
            await page.keyboard.press("Enter")

            await expect(page.locator("#told")).to_contain_text("asked to stop")
            await product.until(lambda: not processes_with(line), within=timedelta(seconds=10))
            await expect(page.locator("h1 .s-canceled")).to_be_visible()
            await expect(page.locator(".cause")).to_have_text("Canceled: wrong model")
            await expect(page.locator("dd", has_text="asked for by ana")).to_be_visible()
            await expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
            # Everyone sees it, where the row is.
            await expect(row(other, episode.run_id)).to_contain_text("CANCELED")

    assert (await episode.record()).cancel_requested_reason == "wrong model"


async def test_a_group_is_canceled_as_one_and_its_page_shows_how_each_ended(
    product: Product, explorer: Explorer
) -> None:
    line = nap()
    with product.worker():
        group = await product.trainer.start_group(spec(box(), command("nap", line)), size=3)
        await product.until(lambda: len(processes_with(line)) >= 3)

        async with browsing(explorer.url) as page:
            await open_page(page, f"/group?id={group.run_group_id}")
            await live(page)
            # What the reader has chosen meanwhile stays chosen.
            await page.get_by_role("checkbox").first.check()
            await page.get_by_role("button", name="Cancel group").click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_role("button", name="Cancel 3 episodes").click()

            await expect(page.locator(".group-counts")).to_contain_text("⊘ 3")
            await expect(page.locator(".strip-large .s-canceled")).to_have_count(3)
            await expect(page.get_by_role("checkbox").first).to_be_checked()
            await expect(page.locator("#compare-said")).to_have_text("1 chosen")
        await group.result()

    assert processes_with(line) == []


async def test_past_its_budget_a_cancel_offers_a_forced_stop_and_names_the_price(
    product: Product, explorer: Explorer
) -> None:
    """The worker is stopped: it neither dies nor hears."""
    line = nap()
    with product.worker() as worker:
        episode = await product.trainer.start(spec(box(), command("nap", line)))
        await product.until(lambda: bool(processes_with(line)))
        os.kill(worker.pid, signal.SIGSTOP)

        async with browsing(explorer.url) as page:
            await open_page(page, f"/run?id={episode.run_id}")
            await live(page)
            await page.get_by_role("button", name="Cancel", exact=True).click()
            await expect(page.get_by_role("dialog")).to_be_visible()
            await page.keyboard.press("Enter")
            notice = page.locator("#canceling")
            await expect(notice).to_contain_text("Canceling")
            await expect(notice).to_contain_text("by ana")
            first = await notice.locator("[data-since]").text_content()
            await expect(notice.locator("[data-since]")).not_to_have_text(str(first))
            await expect(notice).to_contain_text("run_steps, attempt 1")
            await expect(notice.get_by_role("link")).to_have_attribute(
                "href", re.compile(re.escape(product.server.ui_url))
            )
            await notice.get_by_role("button", name="Force stop").click()
            dialog = page.get_by_role("dialog")
            await expect(dialog).to_contain_text("its teardown does not run")
            await dialog.get_by_role("button", name="Force stop without teardown").click()
            await expect(dialog).to_be_hidden()

            os.kill(worker.pid, signal.SIGCONT)
            await expect(page.locator("h1 .s-canceled")).to_be_visible()
            await expect(page.locator(".cause")).to_contain_text("forced by ana")
        await product.until(lambda: not processes_with(line))

    assert product.index.get(episode.run_id).status is RunStatus.CANCELED


async def test_a_cancel_that_comes_too_late_says_how_the_run_ended(
    product: Product, explorer: Explorer
) -> None:
    with product.worker():
        async with browsing(explorer.url) as page:
            # As a page that heard of nothing: its stream is cut off.
            await page.route(
                re.compile(r"/live(\.json|$)"), lambda route: route.fulfill(status=204)
            )
            await open_page(page, "/runs")
            episode = await product.trainer.start(spec(box(), command("nap", "sleep 6")))
            await open_page(page, f"/run?id={episode.run_id}")
            await page.get_by_role("button", name="Cancel", exact=True).click()
            await episode.result()
            await page.keyboard.press("Enter")

            await expect(page.locator("#told")).to_contain_text("COMPLETED")
            await expect(page.locator("h1 .s-completed")).to_be_visible()


async def test_while_temporal_is_away_the_page_says_so_and_what_a_cancel_comes_to(
    product: Product, explorer: Explorer
) -> None:
    line = nap()
    with product.worker():
        episode = await product.trainer.start(spec(box(), command("nap", line)))
        await product.until(lambda: bool(processes_with(line)))
        server = find_running(product.state_dir)
        assert server is not None

        async with browsing(explorer.url, may_complain=True) as page:
            await open_page(page, f"/run?id={episode.run_id}")
            await live(page)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                await expect(page.locator("#trouble")).to_contain_text(
                    "Temporal can't be reached", timeout=60_000
                )
                await open_page(page, "/runs")
                await expect(row(page, episode.run_id)).to_contain_text("RUNNING")
            finally:
                os.kill(server.pid, signal.SIGCONT)
            await expect(page.locator("#trouble")).to_be_empty(timeout=60_000)
        await episode.cancel("over")
        await episode.result()
