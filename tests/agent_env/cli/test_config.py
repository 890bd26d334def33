"""agent_env/cli/config.py."""

from collections.abc import Callable

import pytest

from tests.agent_env.cli.stage import Cli, Said


def test_each_setting_has_its_origin(
    cli: Cli, say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPISODES_MAX_EPISODES", "3")

    said = say("config", "show", "--json")

    found = {item["name"]: item for item in said.json["items"]}
    assert found["state_dir"]["source"] == "option"
    assert (found["max_episodes"]["value"], found["max_episodes"]["source"]) == (
        3,
        "EPISODES_MAX_EPISODES",
    )
    assert found["cancel_grace_s"]["source"] == "default"
    assert not cli.state_dir.exists()


def test_a_password_is_masked(say: Callable[..., Said]) -> None:
    said = say("config", "--database", "postgresql+psycopg://ana:hunter2@db/episodes")

    assert said.code == 0
    assert "hunter2" not in said.out + said.err
    assert "ana:***@db" in said.out


def test_a_setting_that_can_not_be_is_refused(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPISODES_MAX_EPISODES", "none")

    said = say("config", "--json")

    assert said.code == 2
    assert said.json["error"]["type"] == "Config"
    assert "EPISODES_MAX_EPISODES" in said.json["error"]["message"]
