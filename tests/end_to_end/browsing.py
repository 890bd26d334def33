"""Debian's Chromium on an explorer that serves, as a person sits before it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import ConsoleMessage, Error, Page, async_playwright, expect

from agent_env.artifacts import ArtifactStore
from agent_env.explorer.app import ExplorerServices
from agent_env.explorer.server import Explorer, explorer_serving
from agent_env.runs import RunIndex
from tests.agent_env.explorer.conftest import nowhere

CHROMIUM = Path("/usr/bin/chromium")
AXE = Path(__file__).with_name("vendor") / "axe-core-4.14.1.min.js"
NEEDS_CHROMIUM = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs-chromium")
"""Debian's package ``chromium``."""

_ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
_PATIENCE_MS = 20_000

expect.set_options(timeout=_PATIENCE_MS)


@asynccontextmanager
async def serving(index: RunIndex, store: Path, **changes: Any) -> AsyncGenerator[Explorer]:
    """An explorer over an index; no Temporal answers unless ``connect`` says so."""
    values: dict[str, Any] = {
        "index": index,
        "connect": nowhere,
        "store": ArtifactStore(store),
        "user": "ana",
        "poll_every_s": 0.1,
    }
    services = ExplorerServices(**{**values, **changes})
    async with explorer_serving(services, host="127.0.0.1", port=0) as explorer:
        yield explorer


@asynccontextmanager
async def browsing(
    url: str,
    *,
    width: int = 1280,
    theme: Literal["light", "dark"] = "light",
    ignores_policy: bool = False,
    may_complain: bool = False,
    **options: Any,
) -> AsyncGenerator[Page]:
    """A page of a fresh browser. What its console complains of, the policy's refusals also, fails.

    Args:
        url: Where relative addresses start.
        width: Of the window, in pixels.
        theme: What the reader's system prefers.
        ignores_policy: Lets a test put a script of its own into a page.
        may_complain: For tests in which something is down.
        **options: More of a browser context.
    """
    complaints: list[str] = []

    def told(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def raised(error: Error) -> None:
        complaints.append(f"uncaught: {error.message}")

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        context = await browser.new_context(
            base_url=url,
            viewport={"width": width, "height": 800},
            color_scheme=theme,
            bypass_csp=ignores_policy,
            reduced_motion="reduce",
            **options,
        )
        context.set_default_timeout(_PATIENCE_MS)
        page = await context.new_page()
        page.on("console", told)
        page.on("pageerror", raised)
        yield page
        await browser.close()
    uncaught = [text for text in complaints if text.startswith("uncaught")]
    assert (uncaught if may_complain else complaints) == []


async def open_page(page: Page, path: str) -> None:
    """Go to a page, and wait until its scripts have started."""
    await page.goto(path)
    await expect(page.locator("html[data-ready]")).to_be_attached()


async def live(page: Page) -> None:
    """Wait until the page hears of changes."""
    await expect(page.locator("#live-state")).to_have_text("live")


def row(page: Page, run_id: str) -> Any:
    """The row of a run or group whose id needs no quoting."""
    return page.locator(f'tbody[data-run="{run_id}"], tbody[data-group="{run_id}"]')


async def overflow(page: Page) -> int:
    """How many pixels of the page are only reached by scrolling sideways."""
    return await page.evaluate(
        "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


async def serious_findings(page: Page) -> Sequence[str]:
    """What axe-core finds that keeps someone from using the page. Needs ``ignores_policy``."""
    await page.add_script_tag(path=AXE)
    found = await page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
