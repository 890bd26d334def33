import asyncio
import json
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from agent_env.errors import IndexUnavailableError
from agent_env.explorer.api import dumped
from agent_env.explorer.live import Poller
from agent_env.explorer.views import Cause
from agent_env.runs import RunIndex
from agent_env.runs.reads import IndexReads
from agent_env.status import RunStatus
from tests.agent_env.explorer.conftest import (
    CHANGE,
    T0,
    MakeApp,
    browser_of,
    ended,
    group,
    new_run,
    report,
    running,
)


async def test_runs_are_listed_page_by_page(browser: httpx.AsyncClient, index: RunIndex) -> None:
    for number in range(3):
        ended(index, "", run=new_run(f"r{number}", created_at=T0 + timedelta(seconds=number)))

    first = (await browser.get("/runs.json?limit=2")).json()
    rest = (await browser.get("/runs.json", params={"limit": 2, "after": first["next"]})).json()

    assert [row["run_id"] for row in first["runs"] + rest["runs"]] == ["r2", "r1", "r0"]
    assert rest["next"] is None
    assert first["tasks"] == ["task"]
    assert not first["is_empty"]


async def test_an_index_without_runs_says_that_it_is_empty(browser: httpx.AsyncClient) -> None:
    for path in ("/runs.json", "/groups.json", "/tasks.json"):
        assert (await browser.get(path)).json()["is_empty"], path


async def test_newer_runs_are_counted_from_the_first_of_a_page(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    ended(index, "old")
    first = (await browser.get("/runs.json")).json()["first"]
    ended(index, "", run=new_run("new", created_at=T0 + timedelta(seconds=1)))

    answer = await browser.get("/runs/newer.json", params={"after": first})

    assert answer.json() == {"count": 1, "is_more": False}
    none = await browser.get("/runs/newer.json", params={"after": first, "status": "FAILED"})
    assert none.json()["count"] == 0


async def test_a_run_is_shown_with_its_steps_and_what_can_be_done(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    group(index, "g", 3)
    run = new_run("g-0001", run_group_id="g", member_index=1)
    index.open_run(run, host="here", room=9, at=T0)
    index.record_steps("g-0001", [report()], epoch=1, steps_done=1, current_step="score")

    shown = (await browser.get("/run.json?id=g-0001")).json()

    assert shown["steps"][0]["report"]["step_id"] == "play"
    assert (shown["previous_member"], shown["next_member"]) == ("g-0000", "g-0002")
    assert shown["cancel"] == {"allowed": True, "why_not": None}
    assert not shown["run_again"]["allowed"]
    assert "no Temporal server" in shown["temporal_trouble"]
    assert "episodes cancel g-0001" in shown["commands"]


async def test_a_group_is_shown_with_figures_members_and_steps(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    group(index, "g", 4)
    for number, reward in ((0, 0.0), (1, 1.0)):
        run = new_run(f"g-{number:04d}", run_group_id="g", member_index=number)
        index.open_run(run, host="here", room=9, at=T0)
        ended(index, "", run=run, reward=reward, reports=(report(),))

    shown = (await browser.get("/group.json?id=g")).json()

    assert shown["group"]["figures"]["mean"] == 0.5
    assert shown["pass_at"] == {"1": 0.5, "2": 1.0}
    assert [bar["count"] for bar in shown["histogram"]] == [1, 0, 1]
    assert [member["row"]["run_id"] for member in shown["members"]][:2] == ["g-0000", "g-0001"]
    assert shown["members"][0]["advantage"] == pytest.approx(-0.7071, rel=1e-3)
    assert shown["members"][2]["advantage"] is None
    assert (shown["steps"][0]["step_id"], shown["steps"][0]["reached"]) == ("play", 2)
    assert shown["cancel"]["allowed"]


async def test_two_to_eight_runs_are_compared(browser: httpx.AsyncClient, index: RunIndex) -> None:
    for number in range(9):
        ended(index, f"r{number}", reward=float(number))

    shown = (await browser.get("/compare.json?run=r1&run=r2")).json()

    assert [row["run_id"] for row in shown["runs"]] == ["r1", "r2"]
    assert shown["facts"][0] == {"name": "reward", "values": ["1", "2"], "differs": True}
    too_few = await browser.get("/compare.json?run=r1&run=r1")
    assert (too_few.status_code, "not 1" in too_few.text) == (400, True)
    many = "&".join(f"run=r{number}" for number in range(9))
    assert (await browser.get(f"/compare.json?{many}")).status_code == 400
    assert (await browser.get("/compare.json?run=r1&run=no")).status_code == 404


async def test_tasks_are_drawn_from_their_first_run_on(make_app: MakeApp, index: RunIndex) -> None:
    for minute in range(4):
        listed = T0 + timedelta(minutes=minute)
        ended(index, "", run=new_run(f"r{minute}", created_at=listed), reward=float(minute))

    async with browser_of(make_app(now=lambda: T0 + timedelta(minutes=4))) as browser:
        shown = (await browser.get("/tasks.json?since=365d")).json()

    assert shown["since"] == "2026-01-31T09:30:00Z"
    assert (shown["looked_at"], shown["stretch_s"]) == (4, 5)
    (task,) = shown["tasks"]
    assert [point["mean"] for point in task["points"]] == [0.0, 1.0, 2.0, 3.0]
    assert task["points"][1]["starts_at"] == "2026-01-31T09:31:00Z"


async def test_health_says_what_is_away_and_shows_the_rest(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    running(index, "r")

    shown = (await browser.get("/health.json")).json()

    assert shown["index_trouble"] is None
    assert shown["temporal_trouble"] == "no Temporal server runs here"
    assert shown["live"] == {"queued": 0, "running": 1}
    assert shown["hosts"] == [{"host": "here", "running": 1, "is_seen": None}]
    assert shown["disagreements"] is None


@pytest.mark.parametrize(
    "path", ["/run.json?id=x", "/group.json?id=x", "/run?id=x", "/group?id=x", "/nowhere"]
)
async def test_what_there_is_not_is_not_found(browser: httpx.AsyncClient, path: str) -> None:
    answer = await browser.get(path)

    assert answer.status_code == 404
    if ".json" in path:
        assert answer.json()["error"]["type"] == "RunNotFound"


@pytest.mark.parametrize("path", ["/runs", "/groups", "/tasks", "/run?id=r", "/group?id=g"])
async def test_an_index_that_is_away_is_said_on_the_page(
    browser: httpx.AsyncClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise IndexUnavailableError("the run index x can't be used: it is away")

    for name in ("run_list", "group_list", "task_spans"):
        monkeypatch.setattr(IndexReads, name, away)
    for name in ("get", "group"):
        monkeypatch.setattr(RunIndex, name, away)

    answer = await browser.get(path)

    assert answer.status_code == 503
    assert "it is away" in answer.text


async def test_an_index_that_was_moved_away_is_said_and_is_there_again_when_it_is_back(
    browser: httpx.AsyncClient, index: RunIndex, tmp_path: Path
) -> None:
    running(index, "r")
    file, away = tmp_path / "index.sqlite", tmp_path / "away"

    file.rename(away)
    gone = await browser.get("/runs.json")
    page = await browser.get("/run?id=r")
    health = await browser.get("/health.json")
    away.rename(file)
    back = await browser.get("/runs.json")

    assert (gone.status_code, gone.json()["error"]["type"]) == (503, "IndexUnavailable")
    assert page.status_code == 503
    assert str(file) in page.text
    assert health.status_code == 200
    assert str(file) in health.json()["index_trouble"]
    assert [row["run_id"] for row in back.json()["runs"]] == ["r"]


async def test_a_bug_is_an_answer_too(
    browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(IndexReads, "run_list", broken)

    answer = await browser.get("/runs.json")

    assert answer.status_code == 500
    assert answer.json()["error"]["message"].startswith("ZeroDivisionError: a bug")
    assert "Traceback" not in answer.text


async def test_a_cancel_is_kept_while_temporal_is_away(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    running(index, "r")
    asked = {"run_id": "r", "reason": "wrong model", "by": "bo"}

    first = await browser.post("/api/cancel", json=asked, headers=CHANGE)
    again = await browser.post("/api/cancel", json=asked, headers=CHANGE)

    assert first.json()["changed"]
    assert "heard once Temporal answers" in first.json()["detail"]
    assert not again.json()["changed"]
    row = index.get("r")
    assert (row.cancel_requested_by, row.cancel_requested_reason) == ("bo", "wrong model")


async def test_a_cancel_that_comes_too_late_says_how_it_ended(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    ended(index, "r", RunStatus.FAILED)

    answer = await browser.post("/api/cancel", json={"run_id": "r"}, headers=CHANGE)

    assert answer.json() == {
        "target": "r",
        "changed": False,
        "detail": "it ended before: FAILED",
        "run_id": None,
    }


async def test_what_needs_temporal_says_that_it_is_away(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    ended(index, "r")
    group(index, "g", 2)

    for path, body in (
        ("/api/run-again", {"run_id": "r"}),
        ("/api/cancel", {"run_group_id": "g"}),
    ):
        answer = await browser.post(path, json=body, headers=CHANGE)

        assert answer.status_code == 503, path
        assert answer.json()["error"]["type"] == "Unavailable"


async def test_a_stop_is_forced_only_past_the_budget(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    running(index, "r")
    body = {"run_id": "r"}

    early = await browser.post("/api/terminate", json=body, headers=CHANGE)
    index.request_cancel("r", by="ana", reason="", at=T0)
    late = await browser.post("/api/terminate", json=body, headers=CHANGE)

    assert (early.status_code, "cancel it first" in early.text) == (409, True)
    assert late.status_code == 503  # now it is Temporal that is missing
    ended(index, "r")
    over = await browser.post("/api/terminate", json=body, headers=CHANGE)
    assert over.json()["changed"] is False


async def test_a_stream_tells_of_changes(make_app: MakeApp, index: RunIndex) -> None:
    app = make_app(poll_every_s=0.01)
    poller: Poller = app.state.poller
    async with browser_of(app) as browser, poller.running():
        seq = (await browser.get("/live.json")).json()["seq"]
        async with asyncio.timeout(20):
            while (now := (await browser.get(f"/live.json?since={seq}")).json())["seq"] == seq:
                await asyncio.sleep(0.01)
        running(index, "r")
        async with asyncio.timeout(20):
            while (
                "r"
                not in (change := (await browser.get(f"/live.json?since={now['seq']}")).json())[
                    "runs"
                ]
            ):
                await asyncio.sleep(0.01)

        assert change["live"] == {"queued": 0, "running": 1}


@pytest.mark.parametrize(
    ("text", "to"),
    [
        ("r", "/run?id=r"),
        (" g ", "/group?id=g"),
        ("some word", "/runs?text=some%20word"),
        ("", "/runs?text="),
    ],
)
async def test_the_search_box_leads_to_the_run_the_group_or_a_search(
    browser: httpx.AsyncClient, index: RunIndex, text: str, to: str
) -> None:
    running(index, "r")
    group(index, "g", 1)

    assert (await browser.get("/go", params={"text": text})).headers["location"] == to


async def test_the_first_page_is_the_list_of_runs(browser: httpx.AsyncClient) -> None:
    assert (await browser.get("/")).headers["location"] == "/runs"


@pytest.mark.parametrize("path", ["/runs", "/runs.json", "/openapi.json", "/live.json"])
async def test_head_is_get_without_the_body(browser: httpx.AsyncClient, path: str) -> None:
    answer = await browser.head(path)

    assert (answer.status_code, answer.content) == (200, b"")


def test_json_is_made_of_anything() -> None:
    assert json.loads(dumped(Cause(type="E", said="\ud800\0日"))) == {
        "type": "E",
        "said": "\ud800\0日",
    }
    assert dumped({"x": [float("nan"), float("inf"), 1.5]}) == '{"x":[null,null,1.5]}'
