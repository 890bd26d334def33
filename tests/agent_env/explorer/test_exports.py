import csv
import io
import json
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import Connection, insert

from agent_env.explorer import exports
from agent_env.runs import RunIndex
from agent_env.runs.tables import messages
from agent_env.status import RunStatus
from tests.agent_env.explorer.conftest import T0, ended, group, new_run, running


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


async def test_all_runs_that_match_are_in_the_table(
    browser: httpx.AsyncClient, index: RunIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "MAX_ROWS", 2)
    for number in range(5):
        run = new_run(f"r{number}", created_at=T0 + timedelta(seconds=number))
        ended(index, "", run=run, reward=-float(number))
    ended(index, "bad", RunStatus.FAILED, error_type="StepFailed", error="boom\nmore")

    rows = table((await browser.get("/runs.csv?status=COMPLETED")).text)
    failed = table((await browser.get("/runs.csv?status=FAILED")).text)

    assert [row["run_id"] for row in rows] == ["r4", "r3", "r2", "r1", "r0"]
    assert [row["reward"] for row in rows][:2] == ["-4.0", "-3.0"]
    assert (failed[0]["error_type"], failed[0]["error"]) == ("StepFailed", "boom")


async def test_a_table_ends_at_its_limit(
    browser: httpx.AsyncClient, index: RunIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "MOST_ROWS", 3)
    for number in range(5):
        running(index, f"r{number}")

    assert len(table((await browser.get("/runs.csv")).text)) == 3


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx"])
async def test_no_cell_is_a_formula(browser: httpx.AsyncClient, index: RunIndex, text: str) -> None:
    running(index, "r", task_id=text)

    (row,) = table((await browser.get("/runs.csv")).text)

    assert row["task_id"] == f"'{text}"


async def test_runs_are_lines_of_json(browser: httpx.AsyncClient, index: RunIndex) -> None:
    running(index, "a")
    running(index, "b", task_id="\ud800")

    lines = (await browser.get("/runs.jsonl")).text.splitlines()

    assert [json.loads(line)["run_id"] for line in lines] == ["b", "a"]


async def test_groups_are_a_table_of_figures(browser: httpx.AsyncClient, index: RunIndex) -> None:
    group(index, "g", 3)

    (row,) = table((await browser.get("/groups.csv")).text)

    assert (row["run_group_id"], row["n"], row["queued"], row["mean"]) == ("g", "3", "3", "")


async def test_a_whole_conversation_is_downloaded(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    running(index, "r")
    said = [{"role": "user", "content": "x" * 200_000}, {"role": "assistant", "content": "ok"}]
    values = [
        {"run_id": "r", "epoch": 1, "step_id": "play", "seq": seq, "message": message}
        for seq, message in enumerate(said)
    ]

    def write(connection: Connection) -> None:
        connection.execute(insert(messages), values)

    index.reads._database.write(write)  # pyright: ignore[reportPrivateUsage] - whatever a turn allows

    lines = (await browser.get("/run/messages.jsonl?id=r")).text.splitlines()
    shown = (await browser.get("/run/messages.json?id=r")).json()

    assert [json.loads(line)["message"] for line in lines] == said
    assert [message["is_cut"] for message in shown["messages"]] == [True, False]
    assert (await browser.get("/run/messages.jsonl?id=no")).status_code == 404
