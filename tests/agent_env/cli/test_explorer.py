"""agent_env/cli/explorer.py: ``episodes explorer``, and the explorer of ``episodes up``."""

import signal
import socket
from collections.abc import Callable

import httpx
import pytest

from agent_env.runs import RunIndex
from tests.agent_env.cli.stage import Cli, Said, group

TOKEN = "a-long-random-word"


@pytest.fixture
def port() -> int:
    """One that is free."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_it_serves_the_index_without_temporal(cli: Cli, index: RunIndex, port: int) -> None:
    group(index, "g", None, None)

    with cli.start("explorer", "--port", str(port), "--json", ready="serving") as explorer:
        listed = httpx.get(f"http://127.0.0.1:{port}/runs.json").json()
        page = httpx.get(f"http://localhost:{port}/runs")
        explorer.interrupt(signal.SIGTERM)
        said = explorer.ended()

    assert listed["runs"]
    assert page.status_code == 200
    assert said.code == 0
    assert said.json == {
        "url": f"http://127.0.0.1:{port}/",
        "link": None,
        "read_only": False,
        "database": str(cli.state_dir / "episodes.sqlite"),
    }


def test_an_open_page_keeps_it_from_nothing(cli: Cli, port: int) -> None:
    with (
        cli.start("explorer", "--port", str(port), ready="serving") as explorer,
        httpx.stream("GET", f"http://127.0.0.1:{port}/live") as page,
    ):
        assert next(page.iter_lines()).startswith("id: ")
        explorer.interrupt()
        assert explorer.ended().code == 0


def test_read_only_is_an_option(cli: Cli, port: int) -> None:
    with cli.start("explorer", "--port", str(port), "--read-only", ready="serving") as explorer:
        answer = httpx.post(
            f"http://127.0.0.1:{port}/api/cancel",
            json={"run_id": "r"},
            headers={"x-episodes": "explorer"},
        )
        explorer.interrupt()

    assert answer.status_code == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_that_others_reach_needs_a_token(say: Callable[..., Said], host: str) -> None:
    said = say("explorer", "--host", host)

    assert said.code == 2
    assert "a token is needed; set EPISODES_EXPLORER_TOKEN" in said.err


def test_a_token_that_can_be_guessed_is_refused(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPISODES_EXPLORER_TOKEN", "sesame")

    said = say("explorer")

    assert said.code == 2
    assert "has 6 characters, which can be guessed" in said.err
    assert "sesame" not in said.err + said.out


def test_with_a_token_it_prints_a_link_that_works_once_and_never_the_token(
    cli: Cli, port: int
) -> None:
    guarded = Cli(cli.state_dir, {"EPISODES_EXPLORER_TOKEN": TOKEN})
    options = ("--host", "0.0.0.0", "--port", str(port), "--json")
    with guarded.start("explorer", *options, ready="serving") as explorer:
        url = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{url}/runs.json").status_code == 401
        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert httpx.get(f"{url}/runs.json", headers=bearer).status_code == 200
        explorer.interrupt()
        said = explorer.ended()

    assert f":{port}/enter?key=" in said.json["link"]
    assert TOKEN not in said.out + said.err


def test_a_port_in_use_is_said(cli: Cli, port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()

        said = cli.run("explorer", "--port", str(port), "--json")

    assert said.code == 4
    assert said.json["error"]["kind"] == "conflict"
    assert f"port {port} of 127.0.0.1 is in use" in said.json["error"]["message"]


def test_a_host_that_is_not_this_machine_is_said(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPISODES_EXPLORER_TOKEN", TOKEN)

    said = say("explorer", "--host", "192.0.2.1")

    assert said.code == 2
    assert "can't listen on 192.0.2.1" in said.err


def test_without_the_extra_it_names_what_to_install(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    found = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> object:
        return None if name == "uvicorn" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)

    said = say("explorer")
    checks = say("doctor", "--json").json["items"]

    assert said.code == 2
    assert "uvicorn is missing" in said.err
    assert "pip install 'durable-episodes[explorer]'" in said.err
    (check,) = [check for check in checks if check["name"] == "explorer"]
    assert check["verdict"] == "warn"
    assert check["cure"] == "pip install 'durable-episodes[explorer]'"


def test_up_goes_on_without_an_explorer_and_says_why(cli: Cli, port: int) -> None:
    taken = Cli(cli.state_dir, {"EPISODES_EXPLORER_PORT": str(port)})
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()

        with taken.start("up", "--json", ready="serving") as up:
            up.interrupt()
            said = up.ended()

    assert said.code == 0
    assert said.json["explorer"] is None
    assert f"no explorer: port {port} of 127.0.0.1 is in use" in said.err
