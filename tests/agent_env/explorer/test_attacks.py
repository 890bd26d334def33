"""What another site, another machine or an agent may try."""

import json
from collections.abc import AsyncGenerator
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import Connection, insert

from agent_env.explorer.security import Access
from agent_env.results import SandboxRef
from agent_env.runs import RunIndex
from agent_env.runs.tables import messages
from agent_env.status import RunStatus, StepStatus
from tests.agent_env.explorer.conftest import (
    ADDRESS,
    CHANGE,
    T0,
    MakeApp,
    browser_of,
    ended,
    new_run,
    report,
    running,
)

TOKEN = "a-long-random-word"
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\u2028{{7*7}}\0\ud800</title x>"
PAGES = ("/runs", "/groups", "/tasks", "/health")
NOTHING_SHOWN = ("/health", "/runs?text={id}", "/groups/rows?ids={id}")
CANCEL = {"run_id": "r"}


@pytest.fixture
async def guarded(make_app: MakeApp) -> AsyncGenerator[httpx.AsyncClient]:
    """With a token."""
    async with browser_of(make_app(Access(token=TOKEN))) as found:
        yield found


@pytest.mark.parametrize("path", [*PAGES, "/runs.json", "/run?id=r", "/openapi.json", "/static/x"])
async def test_a_name_that_was_made_to_lead_here_reads_nothing(
    browser: httpx.AsyncClient, path: str
) -> None:
    answer = await browser.get(path, headers={"host": "evil.example:8321"})

    assert answer.status_code == 421
    assert "EPISODES_EXPLORER_NAMES" in answer.text


async def test_a_rebound_name_changes_nothing(browser: httpx.AsyncClient, index: RunIndex) -> None:
    running(index, "r")
    evil = {"host": "evil.example", "origin": "http://evil.example", **CHANGE}

    answer = await browser.post("/api/cancel", json=CANCEL, headers=evil)

    assert answer.status_code == 421
    assert index.get("r").cancel_requested_at is None


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example", **CHANGE},
        {"origin": "null", **CHANGE},
        {"origin": "http://127.0.0.1:9999", **CHANGE},
        {"sec-fetch-site": "cross-site", **CHANGE},
        {"origin": ADDRESS},
        {"origin": ADDRESS, "x-episodes": "other"},
        {"origin": ADDRESS, "content-type": "text/plain"},
    ],
)
async def test_a_page_of_another_site_cancels_nothing(
    browser: httpx.AsyncClient, index: RunIndex, headers: dict[str, str]
) -> None:
    running(index, "r")

    answer = await browser.post("/api/cancel", content=json.dumps(CANCEL), headers=headers)

    assert answer.status_code == 403
    assert index.get("r").cancel_requested_at is None


async def test_our_own_page_cancels(browser: httpx.AsyncClient, index: RunIndex) -> None:
    running(index, "r")

    answer = await browser.post("/api/cancel", json=CANCEL, headers={"origin": ADDRESS, **CHANGE})

    assert answer.status_code == 200
    assert index.get("r").cancel_requested_by == "ana"


async def test_a_form_can_not_stand_in_for_json(
    browser: httpx.AsyncClient, index: RunIndex
) -> None:
    running(index, "r")

    answer = await browser.post("/api/cancel", data=CANCEL, headers=CHANGE)

    assert answer.status_code == 422
    assert index.get("r").cancel_requested_at is None


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_other_methods_are_refused(browser: httpx.AsyncClient, method: str) -> None:
    assert (await browser.request(method, "/runs")).status_code in (403, 405, 411)
    answer = await browser.request(method, "/runs", headers={**CHANGE, "content-length": "0"})
    assert answer.status_code == 405


async def test_a_read_only_explorer_changes_nothing(make_app: MakeApp, index: RunIndex) -> None:
    running(index, "r")
    async with browser_of(make_app(Access(token=None, read_only=True))) as browser:
        for path in ("/api/cancel", "/api/run-again", "/api/terminate"):
            answer = await browser.post(path, json=CANCEL, headers=CHANGE)

            assert answer.status_code == 403
            assert "only shows" in answer.json()["error"]["message"]
        shown = (await browser.get("/run.json", params={"id": "r"})).json()
        assert not shown["cancel"]["allowed"]
        assert "read-only" in shown["cancel"]["why_not"]
    assert index.get("r").cancel_requested_at is None


@pytest.mark.parametrize("path", [*(f"{page}.json" for page in PAGES), "/live", "/openapi.json"])
async def test_without_the_token_nothing_is_read(guarded: httpx.AsyncClient, path: str) -> None:
    answer = await guarded.get(path)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_person_without_the_token_is_asked_for_it(guarded: httpx.AsyncClient) -> None:
    answer = await guarded.get("/run?id=a%26b", headers={"accept": "text/html"})

    assert answer.status_code == 303
    assert answer.headers["location"] == "/enter?to=%2Frun%3Fid%3Da%2526b"
    page = await guarded.get(answer.headers["location"], headers={"accept": "text/html"})
    assert page.status_code == 200
    assert "token" in page.text


@pytest.mark.parametrize(
    "given", ["Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer", "Bearer \xff"]
)
async def test_a_wrong_token_is_none(guarded: httpx.AsyncClient, given: str) -> None:
    headers = {b"authorization": given.encode("latin-1")}

    assert (await guarded.get("/runs.json", headers=headers)).status_code == 401


async def test_a_program_shows_the_token(guarded: httpx.AsyncClient, index: RunIndex) -> None:
    running(index, "r")
    headers = {"authorization": f"Bearer {TOKEN}"}

    assert (await guarded.get("/runs.json", headers=headers)).status_code == 200
    answer = await guarded.post("/api/cancel", json=CANCEL, headers={**headers, **CHANGE})
    assert answer.status_code == 200


async def test_a_link_lets_one_browser_in_and_its_cookie_keeps_it_in(make_app: MakeApp) -> None:
    access = Access(token=TOKEN)
    app, key = make_app(access), access.one_time_key()
    async with browser_of(app) as first, browser_of(app) as second:
        answer = await first.get(f"/enter?key={key}&to=/groups")
        late = await second.get(f"/enter?key={key}")

        assert answer.headers["location"] == "/groups"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert TOKEN not in cookie
        assert (await first.get("/groups.json")).status_code == 200
        assert "used before" in late.text
        assert (await second.get("/groups.json")).status_code == 401


async def test_a_person_types_the_token(guarded: httpx.AsyncClient) -> None:
    wrong = await guarded.post("/enter", data={"token": "guess"}, headers={"origin": ADDRESS})
    assert "not the token" in wrong.text
    assert "set-cookie" not in wrong.headers

    right = await guarded.post(
        "/enter", data={"token": TOKEN, "to": "//evil.example"}, headers={"origin": ADDRESS}
    )

    assert (right.status_code, right.headers["location"]) == (303, "/")
    assert (await guarded.get("/runs.json")).status_code == 200


async def test_another_site_signs_nobody_in(guarded: httpx.AsyncClient) -> None:
    evil = {"origin": "http://evil.example"}

    assert (await guarded.post("/enter", data={"token": TOKEN}, headers=evil)).status_code == 403


@pytest.mark.parametrize("path", [*PAGES, "/runs.json", "/nowhere", "/api/cancel", "/run?id=no"])
async def test_every_answer_carries_the_policy(browser: httpx.AsyncClient, path: str) -> None:
    headers = (await browser.get(path)).headers

    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/....//app.py",
        "/static/..\\app.py",
        "/static//etc/passwd",
        "/static/%00",
        "/static/vendor/../../app.py",
    ],
)
async def test_no_path_leads_out_of_the_static_files(browser: httpx.AsyncClient, path: str) -> None:
    url = httpx.URL(ADDRESS).copy_with(raw_path=path.encode())

    answer = await browser.get(url)

    assert answer.status_code in (404, 405), answer.text
    assert "create_app" not in answer.text


@pytest.mark.parametrize("id", ["..", "a/b c", "日本", "x" * 200, "<script>", "a.json", "%2e%2e"])
async def test_ids_are_kept_as_they_are(
    browser: httpx.AsyncClient, index: RunIndex, id: str
) -> None:
    """Case L11, on the page: of runs, groups and tasks alike."""
    run = new_run(id, task_id=id, run_group_id=f"g{id}", member_index=0)
    index.open_run(run, host="here", room=9, at=T0)

    as_json = (await browser.get("/run.json", params={"id": id})).json()
    assert (as_json["run"]["run_id"], as_json["run"]["task_id"]) == (id, id)
    listed = (await browser.get("/runs.json", params={"task": id})).json()
    assert [row["run_id"] for row in listed["runs"]] == [id]
    group = (await browser.get("/group.json", params={"id": f"g{id}"})).json()
    assert group["group"]["run_group_id"] == f"g{id}"
    page = await browser.get("/run", params={"id": id})
    assert page.status_code == 200
    assert "<script>" not in page.text.replace("<script src=", "").replace("<script type=", "")


def hostile(index: RunIndex) -> None:
    """A run in which every text is an attack."""
    ref = SandboxRef(type=HOSTILE, id=HOSTILE, name=HOSTILE, created_at=T0)
    run = new_run(
        HOSTILE,
        task_id=HOSTILE,
        task_version=HOSTILE,
        run_group_id=HOSTILE,
        member_index=0,
        seed={HOSTILE: HOSTILE},
        tags={HOSTILE: HOSTILE},
        steps_total=1,
        namespace=HOSTILE,
        workflow_run_id=HOSTILE,
    )
    index.open_run(run, host=HOSTILE, room=9, at=T0)
    index.request_cancel(HOSTILE, by=HOSTILE, reason=HOSTILE, at=T0)
    bad = report(
        HOSTILE,
        type=HOSTILE,
        status=StepStatus.FAILED,
        error_type=HOSTILE,
        error=HOSTILE,
        output={HOSTILE: HOSTILE},
        sandboxes=(ref,),
    )
    ended(
        index,
        HOSTILE,
        RunStatus.FAILED,
        run=run,
        reports=(bad,),
        error_type=HOSTILE,
        error=HOSTILE,
        scores={HOSTILE: 1.0},
    )
    live = run.model_copy(update={"run_id": "live", "created_at": T0 + timedelta(seconds=1)})
    index.open_run(live, host=HOSTILE, room=9, at=T0)
    said = {
        "role": HOSTILE,
        "name": HOSTILE,
        "content": HOSTILE,
        "tool_calls": [
            {"id": HOSTILE, "type": HOSTILE, "function": {"name": HOSTILE, "arguments": HOSTILE}}
        ],
    }
    values = {"run_id": HOSTILE, "epoch": 1, "step_id": HOSTILE, "seq": 0, "message": said}

    def write(connection: Connection) -> None:
        connection.execute(insert(messages), [values])

    index.reads._database.write(write)  # pyright: ignore[reportPrivateUsage] - whatever a turn allows


@pytest.mark.parametrize(
    "path",
    [
        "/runs",
        "/runs?text={id}",
        "/runs?task={id}&group={id}&tag={id}={id}",
        "/run?id={id}",
        "/run?id=live",
        "/groups",
        "/group?id={id}",
        "/compare?run={id}&run=live",
        "/tasks?since=2026-01-01",
        "/health",
        "/runs/rows?ids={id}",
        "/groups/rows?ids={id}",
        "/run?id=nobody{id}",
        "/enter?key={id}&to={id}",
        "/runs?{id}={id}",
        "/runs?after={id}",
        "/{id}",
    ],
)
async def test_text_from_an_agent_is_never_markup(
    browser: httpx.AsyncClient, index: RunIndex, path: str
) -> None:
    hostile(index)
    # What a browser can put into an address: no half surrogate pair.
    quoted = str(httpx.QueryParams({"x": HOSTILE.replace("\ud800", "")})).removeprefix("x=")
    if "{id}" in path and path.startswith(("/run?", "/group?", "/compare", "/runs/", "/groups/")):
        quoted = str(httpx.QueryParams({"x": "live"})).removeprefix("x=")

    answer = await browser.get(path.replace("{id}", quoted), follow_redirects=True)

    assert answer.status_code < 500, answer.text
    assert "text/html" in answer.headers["content-type"]
    for attack in ("<script>alert", "<img src=x", "</title x>", "{{49", "onerror=alert(2)>"):
        assert attack not in answer.text
    if answer.status_code == 200 and "/enter" not in path:
        assert "alert(1)" in answer.text or path in NOTHING_SHOWN


@pytest.mark.parametrize(
    "path",
    [
        "/runs.json",
        "/runs.jsonl",
        "/runs.csv",
        "/groups.json",
        "/groups.csv",
        "/tasks.json?since=2026-01-01",
        "/health.json",
        "/run.json?id=live",
        "/group.json?id=live",
        "/live.json",
    ],
)
async def test_what_programs_read_is_no_page(
    browser: httpx.AsyncClient, index: RunIndex, path: str
) -> None:
    hostile(index)

    answer = await browser.get(path)

    assert answer.status_code in (200, 404)
    assert "text/html" not in answer.headers["content-type"]
    if "csv" in path or "jsonl" in path:
        assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize("size", [64 * 1024 + 1, 10**12])
async def test_a_change_is_small(browser: httpx.AsyncClient, size: int) -> None:
    headers = {**CHANGE, "content-length": str(size)}

    assert (await browser.post("/api/cancel", headers=headers)).status_code == 413


async def test_a_change_says_how_long_it_is(browser: httpx.AsyncClient) -> None:
    async def endless() -> AsyncGenerator[bytes]:
        while True:
            yield b"x" * 1024

    answer = await browser.post("/api/cancel", content=endless(), headers=CHANGE)

    assert answer.status_code == 411


@pytest.mark.parametrize(
    "body",
    [
        "",
        "null",
        "[]",
        "{}",
        "{",
        '{"run_id": 1}',
        '{"run_id": "a", "run_group_id": "b"}',
        '{"run_id": "a", "force": true}',
        "[" * 30_000,
        '{"run_id": "' + "x" * 1001 + '"}',
    ],
)
async def test_a_body_that_is_no_change_is_refused(browser: httpx.AsyncClient, body: str) -> None:
    headers = {**CHANGE, "content-type": "application/json"}

    answer = await browser.post("/api/cancel", content=body, headers=headers)

    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["error"]["type"] == "InvalidSpec"
