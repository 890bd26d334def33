"""agent_env/cli/reconcile.py: what it says when nothing runs, and of a machine that serves.

What it finds and repairs is tested on the whole product, in tests/end_to_end/test_reconcile.py.
"""

from collections.abc import Callable

import pytest

from agent_env.cli import reconcile
from agent_env.cli._session import Format, Session
from agent_env.disagreements import Disagreement, Kind
from agent_env.reconciler import Look
from agent_env.specs import Reconciled, Repaired
from tests.agent_env.cli.stage import Cli, Said


@pytest.mark.parametrize("check", [["--check"], []])
def test_without_a_server_it_says_how_to_start_one(
    say: Callable[..., Said], check: list[str]
) -> None:
    said = say("reconcile", *check, "--json")

    assert said.code == 5
    assert said.json["error"]["kind"] == "unavailable"
    assert "`episodes up`" in said.json["error"]["message"]


def test_a_server_that_is_away_is_said_so(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")

    said = say("reconcile", "--check")

    assert said.code == 5
    assert "127.0.0.1:9 does not answer" in said.err


@pytest.mark.parametrize("check", [["--check"], []])
def test_a_machine_that_serves_agrees_with_itself(server: Cli, check: list[str]) -> None:
    said = server.run("reconcile", *check)

    assert (said.code, said.out) == (0, "")
    assert "all agree" in said.err


def test_what_disagrees_is_a_line_each_and_an_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    look = Look(
        (
            Disagreement(Kind.ENDED, "run-1", "CANCELED terminated: two\nlines\x1b[1m"),
            Disagreement(Kind.UNLISTED, "run-2", "listed again"),
        ),
        is_whole=False,
        live=2,
        open=1,
    )

    code = reconcile._write_look(Session(), look)  # pyright: ignore[reportPrivateUsage]

    out, err = capsys.readouterr()
    assert code == 1
    assert out.splitlines() == [
        "run-1  ended: CANCELED terminated: two",
        "run-2  unlisted: listed again",
    ]
    assert "there are more" in err
    assert "next: episodes reconcile" in err


@pytest.mark.parametrize(
    ("done", "code", "word"),
    [
        (Reconciled(), 0, "nothing to repair"),
        (Reconciled(repaired=(Repaired(target="a", changed=True, detail="x"),), count=1), 0, ""),
        # Somebody else was faster.
        (Reconciled(repaired=(Repaired(target="a", changed=False, detail="x"),), count=1), 0, ""),
        (
            Reconciled(
                repaired=(Repaired(target="a", changed=False, detail="x", agrees=False),), count=1
            ),
            1,
            "",
        ),
        (
            Reconciled(repaired=(Repaired(target="a", changed=True, detail="x"),), count=9),
            0,
            "and 8 more",
        ),
        (Reconciled(more=True), 1, "repeat this command"),
    ],
)
def test_the_exit_code_says_whether_all_agree_now(
    done: Reconciled, code: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write = reconcile._write_repaired  # pyright: ignore[reportPrivateUsage]

    assert write(Session(format=Format.TEXT), done) == code
    assert word in capsys.readouterr().err
