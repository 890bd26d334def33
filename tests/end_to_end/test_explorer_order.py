"""Answers that come late, or not at all: no page shows an older one over a newer one."""

import asyncio
import re
from datetime import timedelta

from playwright.async_api import Route, expect

from agent_env.explorer.server import Explorer
from agent_env.runs import RunIndex
from tests.agent_env.explorer.conftest import T0, ended, new_run, running, say
from tests.end_to_end.browsing import NEEDS_CHROMIUM, browsing, live, open_page, row

pytestmark = NEEDS_CHROMIUM

NOTES_ROWS_WITHOUT_HOST = """() => {
    window.without = 0;
    const row = () => document.querySelector("#results tbody").textContent;
    new MutationObserver(() => { if (!row().includes("here")) window.without += 1; })
        .observe(document.getElementById("results"), { childList: true, subtree: true });
}"""


class Gate:
    """Holds an answer of now until it is opened."""

    def __init__(self) -> None:
        self.holds = asyncio.Event()
        self._opened = asyncio.Event()

    async def __call__(self, route: Route) -> None:
        answer = await route.fetch()
        self.holds.set()
        await self._opened.wait()
        await route.fulfill(response=answer)

    async def hold(self, route: Route) -> None:
        """Hold the question instead, as of a stream, whose answer never ends."""
        self.holds.set()
        await self._opened.wait()
        await route.continue_()

    def open(self) -> None:
        self._opened.set()


def later(index: RunIndex, minutes: int) -> None:
    """A run that is newer than what the page shows."""
    run = new_run(f"later-{minutes}", created_at=T0 + timedelta(minutes=minutes))
    index.open_run(run, host="here", room=1000, at=T0)


async def test_an_answer_for_the_columns_of_before_changes_no_row(
    explorer: Explorer, index: RunIndex
) -> None:
    running(index, "run-0")
    first, gate = "#results tbody >> nth=0", Gate()

    async with browsing(explorer.url) as page:
        await open_page(page, "/runs")
        await live(page)
        await page.route("**/runs/rows*", gate)
        ended(index, "run-0", reward=0.5, scores={"play": 0.5})
        await gate.holds.wait()
        await page.get_by_text("Columns").click()
        await page.get_by_label("host").check()
        await expect(page.locator(first)).to_contain_text("here")
        await page.evaluate(NOTES_ROWS_WITHOUT_HOST)

        async with page.expect_response("**/runs/rows*columns=*"):
            gate.open()  # so it is asked again, for the columns of now
        await expect(page.locator(first)).to_contain_text("0.5")
        assert await page.evaluate("window.without") == 0


async def test_a_count_of_before_does_not_come_back_after_the_newest_are_shown(
    explorer: Explorer, index: RunIndex
) -> None:
    running(index, "run-0")
    gate = Gate()

    async with browsing(explorer.url) as page:
        await open_page(page, "/runs")
        await live(page)
        later(index, 1)
        await expect(page.locator("#newer")).to_have_text("1 new ▲")
        await page.route("**/runs/newer.json*", gate)
        later(index, 2)
        await gate.holds.wait()
        await page.locator("#newer").click()
        await expect(row(page, "later-2")).to_be_visible()
        await expect(page.locator("#newer")).to_be_hidden()
        async with page.expect_response("**/runs/newer.json*"):
            gate.open()
        # What comes after it shows that it has been taken in.
        ended(index, "run-0")

        await expect(row(page, "run-0")).to_contain_text("COMPLETED")
        await expect(page.locator("#newer")).to_be_hidden()


async def test_no_row_is_asked_for_while_a_filter_s_older_answer_may_still_come(
    explorer: Explorer, index: RunIndex
) -> None:
    running(index, "run-0")
    running(index, "other")
    asked: list[str] = []
    gate = Gate()

    async with browsing(explorer.url) as page:
        await page.clock.install()
        await open_page(page, "/runs")
        await live(page)
        await page.route("**/runs?*text=run*", gate)
        await page.locator("#text").fill("run")
        await gate.holds.wait()
        page.on("request", lambda request: asked.append(request.url))
        ended(index, "run-0")
        await expect(page.locator("#live-counts")).to_have_text("1 running")
        await page.clock.fast_forward(5000)
        await page.evaluate("() => fetch('/runs.json?limit=1')")  # its turn comes after theirs
        meanwhile = [url for url in asked if "/runs/rows" in url]
        gate.open()

        await expect(page.locator("#results tbody")).to_have_count(1)
        await expect(row(page, "run-0")).to_contain_text("COMPLETED")
    assert meanwhile == []


async def test_a_row_that_could_not_be_read_is_asked_for_again(
    explorer: Explorer, index: RunIndex
) -> None:
    running(index, "run-0")
    running(index, "run-1")

    async with browsing(explorer.url, may_complain=True) as page:
        await page.clock.install()
        await open_page(page, "/runs")
        await live(page)
        await page.route("**/runs/rows*", lambda route: route.abort())
        ended(index, "run-0")
        await expect(page.locator("#live-counts")).to_have_text("1 running")
        await page.clock.fast_forward(5000)
        await page.evaluate("() => fetch('/runs.json?limit=1')")  # its turn comes after theirs
        await page.unroute("**/runs/rows*")
        ended(index, "run-1")

        await expect(row(page, "run-1")).to_contain_text("COMPLETED")
        await expect(row(page, "run-0")).to_contain_text("COMPLETED")


async def test_a_page_that_is_asked_for_twice_ends_with_the_newer_answer(
    explorer: Explorer, index: RunIndex
) -> None:
    running(index, "run-0")
    gate = Gate()
    refresh = "import('/static/refresh.js').then(({ refresh }) => refresh())"

    async with browsing(explorer.url) as page:
        # As a page that heard of nothing: no later change heals it.
        await page.route(re.compile(r"/live(\.json)?\?"), lambda route: route.fulfill(status=204))
        await open_page(page, "/run?id=run-0")
        await page.route("**/run?id=run-0", gate, times=1)
        await page.evaluate(f"() => {{ window.first = {refresh}; }}")
        await gate.holds.wait()
        ended(index, "run-0")
        await page.evaluate(f"() => {refresh}")
        await expect(page.locator("h1 .s-completed")).to_be_visible()
        gate.open()
        await page.evaluate("() => window.first")

        await expect(page.locator("h1 .s-completed")).to_be_visible()


async def test_what_changed_before_its_stream_was_open_is_told_to_a_page(
    explorer: Explorer, index: RunIndex
) -> None:
    running(index, "run-0")
    gate = Gate()

    async with browsing(explorer.url) as page:
        # Somebody else is told, so that the page's stream begins after it.
        other = await page.context.new_page()
        await open_page(other, "/run?id=run-0")
        await live(other)
        await page.route("**/live?*", gate.hold)
        await open_page(page, "/run?id=run-0")
        await gate.holds.wait()
        ended(index, "run-0")
        await expect(other.locator("h1 .s-completed")).to_be_visible()
        gate.open()

        await expect(page.locator("h1 .s-completed")).to_be_visible()


async def test_what_is_said_while_messages_are_under_way_is_asked_for_after_them(
    explorer: Explorer, index: RunIndex
) -> None:
    running(index, "talker")
    say(index, "talker", "first")
    gate = Gate()

    async with browsing(explorer.url) as page:
        await open_page(page, "/run?id=talker")
        await live(page)
        await page.route("**/run/messages?*", gate, times=1)
        say(index, "talker", "second", first=1)
        await gate.holds.wait()
        say(index, "talker", "third", first=2)
        await expect(page.get_by_text("3 messages")).to_be_visible()
        gate.open()

        await expect(page.locator("#talk > li")).to_have_count(3)
        await expect(page.locator("#talk > li").last).to_contain_text("third")


async def test_messages_of_before_a_search_are_not_put_among_what_it_found(
    explorer: Explorer, index: RunIndex
) -> None:
    ended(index, "talker")
    say(index, "talker", *(f"message number {number}" for number in range(350)))
    gate = Gate()

    async with browsing(explorer.url) as page:
        await open_page(page, "/run?id=talker")
        await page.route("**/run/messages?*after=*", gate, times=1)
        await page.locator("#talk > li").last.scroll_into_view_if_needed()
        await gate.holds.wait()
        await page.locator("#talk-text").fill("number 349")
        await expect(page.locator("#talk > li")).to_have_count(1)
        async with page.expect_response("**/run/messages?*after=*"):
            gate.open()
        await page.evaluate("() => fetch('/runs.json?limit=1')")  # its turn comes after theirs

        await expect(page.locator("#talk > li")).to_have_count(1)
