"""Makes the screenshots of the README: real runs, a real explorer, a real browser.

Run with ``make screenshots``. Needs Debian's package ``chromium`` and writes ``docs/images``.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect
from pydantic import JsonValue
from temporalio.client import Client

from agent_env.artifacts import ArtifactStore
from agent_env.config import Settings
from agent_env.episode import EpisodeSpec
from agent_env.explorer.app import ExplorerServices
from agent_env.explorer.server import explorer_serving
from agent_env.local import local_stack
from agent_env.task import Task
from agent_env.task_files import load_task
from agent_env.trainer import Trainer

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
_CHROMIUM = "/usr/bin/chromium"
_ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
_SIZE: ViewportSize = {"width": 1200, "height": 660}

_REPAIR: JsonValue = {
    "id": "repair-parser",
    "version": "3",
    "steps": [
        {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box"},
        {"id": "prepare", "type": "run_code", "command": "sleep 0.2; echo ready"},
        {
            "id": "patch",
            "type": "run_code",
            "command": "sleep 0.$((1 + <seed> % 7)); test $((<seed> % 5)) -ne 3"
            " || { echo 'hunk 2 of parser.py does not apply' >&2; exit 1; }",
        },
        {
            "id": "check",
            "type": "verify_sandbox",
            "score_aggregator": "weighted_average",
            "criteria": [
                {
                    "type": "bash_cmd_succeeds",
                    "criterion": f"case {case}",
                    "bash_cmd": f"test $(( (<seed> * {case}) % {case + 3} )) -le {case}",
                    "weight": case,
                }
                for case in range(1, 6)
            ],
        },
    ],
}
_LONG: JsonValue = {
    "id": "play-long",
    "steps": [
        {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box"},
        {"id": "play", "type": "run_code", "command": "sleep 600"},
    ],
}


async def main() -> None:
    """Play, show, take pictures, and leave nothing running."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="episodes-screenshots-") as folder:
        settings = Settings(state_dir=Path(folder), max_episodes=32)
        async with local_stack(settings) as stack:
            trainer = stack.trainer
            group_id = await _played(trainer)
            long = await trainer.start_group(_spec(_LONG), size=5)
            await _until_begun(trainer, f"{long.run_group_id}-0001")
            await trainer.attach(f"{long.run_group_id}-0001").cancel("wrong model", by="ana")

            async def connected() -> Client:
                return trainer.client

            services = ExplorerServices(
                index=trainer.index,
                connect=connected,
                store=ArtifactStore(settings.state_dir / "artifacts"),
                user="ana",
                temporal_ui=lambda: stack.ui_url,
            )
            async with explorer_serving(services, host="127.0.0.1", port=0) as explorer:
                await _pictures(explorer.url, group_id)
            await long.cancel("the pictures are taken", by="ana")
            await long.result()


async def _until_begun(trainer: Trainer, run_id: str) -> None:
    async with asyncio.timeout(30):
        while (await trainer.attach(run_id).record()).current_step != "play":
            await asyncio.sleep(0.05)


def _spec(task: JsonValue) -> EpisodeSpec:
    return EpisodeSpec.from_task(Task.of(task))


async def _played(trainer: Trainer) -> str:
    """Some groups that have ended; the id of the one to be shown."""
    cartpole = EpisodeSpec.from_task(load_task(ROOT / "examples/cartpole"))
    for spec, size in ((cartpole, 8), (cartpole, 8)):
        await (await trainer.start_group(spec, size=size)).result()
    shown = await trainer.start_group(_spec(_REPAIR), size=24)
    await shown.result()
    await (await trainer.start_group(_spec(_REPAIR), size=8)).result()
    return shown.run_group_id


async def _pictures(url: str, group_id: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=_CHROMIUM, args=_ARGUMENTS)
        await _picture(browser, f"{url}runs", "runs", "light")
        await _picture(browser, f"{url}group?id={group_id}", "group", "dark")
        await browser.close()


async def _picture(browser: Browser, url: str, name: str, theme: Literal["light", "dark"]) -> None:
    page = await browser.new_page(viewport=_SIZE, color_scheme=theme, reduced_motion="reduce")
    await page.goto(url)
    await _settled(page)
    await page.screenshot(path=IMAGES / f"{name}.png")


async def _settled(page: Page) -> None:
    """Wait until the page hears of changes and what was canceled has ended."""
    await expect(page.locator("#live-state")).to_have_text("live", timeout=20_000)
    await expect(page.locator(".s-canceling")).to_have_count(0, timeout=20_000)


if __name__ == "__main__":
    asyncio.run(main())
