import asyncio
import socket
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from agent_env.artifacts import ArtifactStore
from agent_env.config import Settings
from agent_env.errors import ConflictError
from agent_env.explorer import server
from agent_env.explorer.app import ExplorerServices
from agent_env.explorer.security import Access
from agent_env.explorer.server import access_of, explorer_serving, services_of
from agent_env.runs import RunIndex
from tests.agent_env.explorer.conftest import nowhere


@pytest.fixture
def services(index: RunIndex, tmp_path: Path) -> ExplorerServices:
    return ExplorerServices(index=index, connect=nowhere, store=ArtifactStore(tmp_path))


@pytest.fixture
def taken() -> Generator[int]:
    """A port that something else listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


async def test_a_port_that_nobody_chose_may_be_the_next_one(
    services: ExplorerServices, taken: int
) -> None:
    with pytest.raises(ConflictError, match=f"port {taken} of 127.0.0.1 is in use"):
        async with explorer_serving(services, host="127.0.0.1", port=taken):
            pass

    async with explorer_serving(services, host="127.0.0.1", port=taken, may_move=True) as explorer:
        assert explorer.url != f"http://127.0.0.1:{taken}/"
        async with httpx.AsyncClient(base_url=explorer.url) as browser:
            assert (await browser.get("/runs.json")).status_code == 200


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as found:
            found.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="needs-ipv6")
async def test_it_serves_ipv6(services: ExplorerServices) -> None:
    async with explorer_serving(services, host="::1", port=0) as explorer:
        assert explorer.url.startswith("http://[::1]:")
        async with httpx.AsyncClient(base_url=explorer.url) as browser:
            assert (await browser.get("/runs.json")).status_code == 200


async def test_it_ends_soon_though_pages_are_open(
    services: ExplorerServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_STOP_S", 60)
    async with httpx.AsyncClient(timeout=20) as browser, asyncio.timeout(20):
        async with explorer_serving(services, host="127.0.0.1", port=0) as explorer:
            pages = [browser.stream("GET", f"{explorer.url}live") for _ in range(5)]
            for page in pages:
                assert (await page.__aenter__()).status_code == 200
            began = asyncio.get_running_loop().time()
        took = asyncio.get_running_loop().time() - began
        for page in pages:
            await page.__aexit__(None, None, None)

    assert took < 10


async def test_the_link_lets_one_browser_in(index: RunIndex, tmp_path: Path) -> None:
    guarded = ExplorerServices(
        index=index,
        connect=nowhere,
        store=ArtifactStore(tmp_path),
        access=Access(token="a-long-random-word"),
    )
    async with (
        explorer_serving(guarded, host="127.0.0.1", port=0) as explorer,
        httpx.AsyncClient(follow_redirects=True) as browser,
    ):
        answer = await browser.get(explorer.link)

        assert answer.status_code == 200
        assert str(answer.url) == f"{explorer.url}runs"


def test_names_of_ours_are_those_that_are_set(tmp_path: Path) -> None:
    settings = Settings(
        state_dir=tmp_path,
        explorer_token="a-long-random-word",
        explorer_host="10.0.0.7",
        explorer_names="episodes.example.org, other.example.org",
    )

    access = access_of(settings)

    for name in ("episodes.example.org", "other.example.org:80", "10.0.0.7", socket.gethostname()):
        assert access.is_host(name)
    assert not access.is_host("example.org")


def test_what_the_settings_say_is_what_it_works_with(index: RunIndex, tmp_path: Path) -> None:
    settings = Settings(
        state_dir=tmp_path,
        cancel_grace_s=5,
        explorer_read_only=True,
        temporal_ui="https://temporal.example.org",
    )

    services = services_of(settings, index, user="ana")

    assert services.force_after == timedelta(seconds=35)
    assert services.access.read_only
    assert services.temporal_ui() == "https://temporal.example.org"
    assert services.hosts == ()
    assert not (tmp_path / "host").exists()
    named = services_of(settings.model_copy(update={"host": "mine"}), index, user="ana")
    assert named.hosts == ("mine",)
