"""agent_env/cli/worker.py: ``episodes up`` and ``episodes worker``."""

import signal
from pathlib import Path

import pytest

from tests.agent_env.cli.stage import BOX, PASSES, Cli, task_file


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_says_where_things_are_and_drains_when_asked(cli: Cli, number: signal.Signals) -> None:
    with cli.start("up", "--json", ready="serving") as up:
        up.interrupt(number)
        said = up.ended()

    assert said.code == 0
    assert set(said.json) == {
        "explorer",
        "temporal_ui",
        "temporal_address",
        "state_dir",
        "max_episodes",
        "is_worker",
    }
    assert said.json["temporal_ui"].startswith("http://127.0.0.1:")
    assert said.json["explorer"].startswith("http://127.0.0.1:")
    assert (said.json["state_dir"], said.json["is_worker"]) == (str(cli.state_dir), True)
    assert "draining" in said.err


def test_a_second_up_is_a_stand_in(server: Cli) -> None:
    with server.start("up", ready="stand-in") as second:
        second.interrupt()

        assert second.ended().code == 0


def test_a_worker_serves_the_server_that_is_named(server: Cli, tmp_path: Path, cli: Cli) -> None:
    address = server.run("doctor", "--json").json["items"][2]["detail"].removesuffix(" answers")
    far = Cli(
        cli.state_dir, {"TEMPORAL_ADDRESS": address, "EPISODES_DATABASE": server.database_url}
    )

    with far.start("worker", "--json", ready="serving on host") as worker:
        done = far.run("run", task_file(tmp_path, "good", BOX, PASSES), "-n", "2", "--json")
        worker.interrupt(signal.SIGTERM)
        said = worker.ended()

    assert done.code == 0
    assert said.code == 0
    assert set(said.json) == {"host", "state_dir", "max_episodes"}


def test_one_worker_a_state_folder(server: Cli) -> None:
    said = server.run("worker", "--json")

    assert said.code == 4
    assert said.json["error"]["kind"] == "conflict"


def test_a_worker_needs_a_server(cli: Cli) -> None:
    said = cli.run("worker", "--json")

    assert said.code == 5
    assert said.json["error"]["kind"] == "unavailable"
    assert "episodes up" in said.json["error"]["message"]
