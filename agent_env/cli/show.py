"""``episodes show``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from agent_env.cli._command import Command
from agent_env.cli._session import Session
from agent_env.errors import RunNotFoundError
from agent_env.status import StepStatus

if TYPE_CHECKING:
    from rich.text import Text

    from agent_env.results import StepReport
    from agent_env.runs import RunIndex, RunRecord


@click.command("show", cls=Command, example="episodes show run-20260131-093005-k3f9q2")
@click.argument("run_id", metavar="RUN")
@click.pass_obj
def show(session: Session, run_id: str) -> None:
    """Show everything about one run.

    Needs the run index only: works while no Temporal server runs.
    """
    session.run_id = run_id
    with session.index() as index:
        run = _found(index, run_id)
        steps = index.steps(run_id)
    url = temporal_url(session.settings.state_dir, run)
    session.out.document(
        {
            **run.model_dump(mode="json"),
            "workflow_id": run.run_id,
            "temporal_url": url,
            "steps": [step.model_dump(mode="json") for step in steps],
        },
        lambda: _lines(run, steps, url, session),
    )
    if not run.status.is_finished:
        session.out.hint("cancel", run_id)
    elif run.run_group_id is not None:
        session.out.hint("groups", "show", run.run_group_id)


def temporal_url(state_dir: Path, run: RunRecord) -> str | None:
    """The run's workflow in the embedded server's UI; None while that does not run."""
    from agent_env.embedded import find_running

    server = find_running(state_dir)
    if server is None:
        return None
    parts = ["namespaces", run.namespace, "workflows", run.run_id, run.workflow_run_id]
    return "/".join([server.ui_url, *(quote(part, safe="") for part in parts if part)])


def _found(index: RunIndex, run_id: str) -> RunRecord:
    try:
        return index.get(run_id)
    except RunNotFoundError:
        try:
            index.group(run_id)
        except RunNotFoundError:
            pass
        else:
            raise RunNotFoundError(
                f"{run_id!r} is a group, not a run; try `episodes groups show`"
            ) from None
        raise


def _lines(
    run: RunRecord, steps: Sequence[StepReport], url: str | None, session: Session
) -> Iterator[Text]:
    from rich.text import Text

    from agent_env.cli import _words
    from agent_env.cli._table import fields

    yield _words.status(run) + Text(f"  {_words.printable(run.run_id)}", style="bold")
    if run.error_type is not None:
        said = _words.printable(run.error or "").splitlines() or [""]
        color = _words.MARKS[run.status][1]
        yield Text(f"{_words.printable(run.error_type)}: {said[0]}".rstrip(": "), style=color)
        yield from (Text(f"  {line}") for line in said[1:])
    yield Text()
    yield from fields(_facts(run, url, session))
    if steps:
        yield Text()
        yield from _step_lines(steps)


def _facts(run: RunRecord, url: str | None, session: Session) -> list[tuple[str, str]]:
    from agent_env.cli import _words

    def at(moment: datetime | None) -> str:
        return _words.moment(moment, session.now, session.out.time_format)

    place = "" if run.member_index is None else f", member {run.member_index}"
    facts = [
        ("task", f"{run.task_id} v{run.task_version}"),
        ("group", f"{run.run_group_id}{place}" if run.run_group_id else None),
        ("instance", run.instance_id if run.instance_id != run.run_id else None),
        ("reward", _words.number(run.reward)),
        ("scores", ", ".join(f"{k} {_words.number(v)}" for k, v in run.scores.items())),
        ("steps", _words.progress(run)),
        ("listed", at(run.created_at)),
        ("started", at(run.started_at) if run.started_at else None),
        ("finished", at(run.finished_at) if run.finished_at else None),
        ("took", _words.duration(_words.took(run, session.now))),
        ("host", f"{run.host}, epoch {run.epoch}" if run.host else None),
        ("seed", _pairs(run.seed)),
        ("tags", _pairs(run.tags)),
        ("model", run.model),
        ("tokens", _tokens(run)),
        ("cancel", _cancel(run, at(run.cancel_requested_at))),
        ("still up", _still_up(run)),
        ("workflow", f"{run.run_id} in namespace {run.namespace}"),
        ("Temporal UI", url),
    ]
    return [(name, _words.printable(value)) for name, value in facts if value]


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _tokens(run: RunRecord) -> str | None:
    if run.prompt_tokens is None and run.completion_tokens is None:
        return None
    return f"{run.prompt_tokens or 0:,} in, {run.completion_tokens or 0:,} out"


def _cancel(run: RunRecord, when: str) -> str | None:
    if run.cancel_requested_at is None:
        return None
    reason = f": {run.cancel_requested_reason}" if run.cancel_requested_reason else ""
    return f"asked for by {run.cancel_requested_by or 'nobody known'}, {when}{reason}"


def _still_up(run: RunRecord) -> str | None:
    if not run.still_up:
        return None
    what = ", ".join(f"{ref.type} sandbox {ref.name!r} ({ref.id})" for ref in run.still_up)
    return f"{what}: could not be destroyed yet; workers keep trying"


def _step_lines(steps: Sequence[StepReport]) -> Iterator[Text]:
    from rich.text import Text

    from agent_env.cli import _words
    from agent_env.cli._table import Column, Row, table

    columns = (
        Column("status"),
        Column("step"),
        Column("type"),
        Column("attempt", right=True),
        Column("score", right=True),
        Column("took", right=True),
    )
    rows: list[Row] = []
    seen: dict[str, int] = {}
    attempts = {step.step_id: 0 for step in steps}
    for step in steps:
        attempts[step.step_id] += step.status is not StepStatus.SKIPPED
    for step in steps:
        seen[step.step_id] = seen.get(step.step_id, 0) + 1
        below = None
        if step.error_type is not None:
            said = _words.first_line(step.error or "")
            retried = " (retried)" if step.retried else ""
            words = f"{step.error_type}: {said}" if said else step.error_type
            below = Text(_words.printable(words) + retried, style="red")
        rows.append(
            Row(
                (
                    _words.step_status(step.status),
                    _words.printable(step.step_id),
                    _words.printable(step.type),
                    f"{seen[step.step_id]} of {max(1, attempts[step.step_id])}",
                    _words.number(step.score),
                    _words.duration(_seconds(step)),
                ),
                below,
            )
        )
    yield from table(columns, rows)


def _seconds(step: StepReport) -> float | None:
    if step.started_at is None or step.finished_at is None:
        return None
    return max(0.0, (step.finished_at - step.started_at).total_seconds())
