"""Fills a run index with any number of runs, much faster than by playing them."""

import random
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from sqlalchemy import make_url

from agent_env.runs.tables import metadata, run_groups, runs

TASKS = 20
GROUP_SIZE = 8
LARGE = "grp-large"
"""A group of 1,000."""
_LARGE_SIZE = 1_000
_START = datetime(2026, 1, 1, tzinfo=UTC)
END = _START + timedelta(days=10_000)
_LIVE = 240
"""Of the newest: the first 40 run on five hosts, the others are queued."""


def run_id(number: int) -> str:
    """Of the run that was listed as this one."""
    return f"run-20260101-{number:09d}"


def group_id(number: int) -> str:
    """Of a group of 8."""
    return f"grp-20260101-{number:09d}"


def moment(number: int) -> datetime:
    """When a run was listed."""
    return _START + timedelta(seconds=0.25 * number)


def fill(url: str, count: int) -> None:
    """Make the index hold these runs and no others."""
    runs_rows, group_rows = list(_runs(count)), list(_groups(count))
    if url.startswith("sqlite"):
        _fill_sqlite(str(make_url(url).database), runs_rows, group_rows)
    else:
        _fill_postgres(url, runs_rows, group_rows)


def _runs(count: int) -> Iterator[dict[str, Any]]:
    dice = random.Random(7)
    large_from = count // 2
    for number in range(count):
        at = moment(number)
        ended = dice.choices(("COMPLETED", "FAILED", "CANCELED"), (90, 8, 2))[0]
        newest = count - number - 1
        status = "RUNNING" if newest < 40 else "QUEUED" if newest < _LIVE else ended
        is_large = large_from <= number < large_from + _LARGE_SIZE
        yield dict.fromkeys(runs.columns.keys()) | {
            "run_id": run_id(number),
            "instance_id": run_id(number),
            "runner": "episode",
            "task_id": f"task-{number // GROUP_SIZE % TASKS}",
            "task_version": "1",
            "run_group_id": LARGE if is_large else group_id(number // GROUP_SIZE),
            "member_index": number - large_from if is_large else number % GROUP_SIZE,
            "status": status,
            "created_at": at,
            "started_at": None if status == "QUEUED" else at + timedelta(seconds=1),
            "finished_at": at + timedelta(seconds=60) if status == ended else None,
            "error_type": "StepFailed" if status == "FAILED" else None,
            "error": "step 'verify': exit code 1" if status == "FAILED" else None,
            "reward": dice.random() if status == "COMPLETED" else None,
            "scores": '{"verify":0.5}',
            "steps_total": 3,
            "steps_done": 3,
            "host": f"host-{newest % 5}" if status != "QUEUED" else None,
            "epoch": 1,
            "still_up": "[]",
            "seed": f'{{"seed":"{number}"}}',
            "tags": '{"experiment":"7"}',
            "workflow_run_id": f"wf-{number:012d}",
            "namespace": "default",
        }


def _groups(count: int) -> Iterator[dict[str, Any]]:
    yield {
        "run_group_id": LARGE,
        "task_id": "task-0",
        "created_at": moment(count // 2),
        "size": _LARGE_SIZE,
    }
    for number in range(count // GROUP_SIZE):
        yield {
            "run_group_id": group_id(number),
            "task_id": f"task-{number % TASKS}",
            "created_at": moment(number * GROUP_SIZE),
            "size": GROUP_SIZE,
        }


def _fill_sqlite(
    path: str, run_rows: list[dict[str, Any]], group_rows: list[dict[str, Any]]
) -> None:
    connection = sqlite3.connect(path)
    for table, rows in ((runs, run_rows), (run_groups, group_rows)):
        connection.execute(f"DELETE FROM {table.name}")
        marks = ", ".join("?" for _ in rows[0])
        connection.executemany(
            f"INSERT INTO {table.name} ({', '.join(rows[0])}) VALUES ({marks})",
            (
                [
                    value.strftime("%Y-%m-%d %H:%M:%S.%f") if isinstance(value, datetime) else value
                    for value in row.values()
                ]
                for row in rows
            ),
        )
    connection.commit()
    connection.execute("ANALYZE")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _fill_postgres(
    url: str, run_rows: list[dict[str, Any]], group_rows: list[dict[str, Any]]
) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"TRUNCATE {', '.join(metadata.tables)}".encode())
        for table, rows in ((runs, run_rows), (run_groups, group_rows)):
            copying = f"COPY {table.name} ({', '.join(rows[0])}) FROM STDIN"
            with connection.cursor().copy(copying.encode()) as copy:
                for row in rows:
                    copy.write_row([*row.values()])
            connection.execute(f"VACUUM ANALYZE {table.name}".encode())
