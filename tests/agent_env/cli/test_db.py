"""agent_env/cli/db.py."""

from collections.abc import Callable

from agent_env.runs.schema import HEAD
from tests.agent_env.cli.stage import Said


def test_an_upgrade_says_what_it_did_and_may_be_repeated(say: Callable[..., Said]) -> None:
    first, again = say("db", "upgrade", "--json"), say("db", "upgrade", "--json")

    assert (first.code, again.code) == (0, 0)
    assert first.json["changed"] is True
    assert first.json["detail"] == f"from empty to {HEAD}"
    assert (again.json["changed"], again.json["detail"]) == (False, f"is at {HEAD}")
    assert again.json["target"].startswith("sqlite:///")


def test_a_database_that_does_not_answer_is_unavailable(say: Callable[..., Said]) -> None:
    said = say("db", "upgrade", "--database", "sqlite:////proc/none/x.sqlite")

    assert said.code == 5
    assert said.err.startswith("error: ")
