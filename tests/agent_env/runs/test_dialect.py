"""Each difference between the databases has both branches; that of PostgreSQL compiles."""

from typing import Any

import pytest
from sqlalchemy import ClauseElement, select
from sqlalchemy.dialects import postgresql, sqlite

from agent_env.runs import _dialect
from agent_env.runs.tables import runs, steps

DIALECTS = {"sqlite": sqlite.dialect(), "postgresql": postgresql.dialect()}


def sql(statement: ClauseElement, dialect: str) -> str:
    return " ".join(str(statement.compile(dialect=DIALECTS[dialect])).split())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_inserts_name_what_they_do_on_conflict(dialect: str) -> None:
    assert "ON CONFLICT DO NOTHING RETURNING" in sql(_dialect.insert_new(dialect, runs), dialect)
    assert sql(_dialect.insert_missing(dialect, runs), dialect).endswith("ON CONFLICT DO NOTHING")
    replaced = sql(_dialect.insert_or_replace(dialect, steps), dialect)
    assert "ON CONFLICT (run_id, epoch, step_id) DO UPDATE SET type = excluded.type" in replaced
    assert "run_id = excluded.run_id" not in replaced


@pytest.mark.parametrize(
    ("dialect", "mean", "std", "tags"),
    [
        ("sqlite", "agent_env_mean(runs.reward)", "agent_env_std(runs.reward)", "json_each(runs"),
        (
            "postgresql",
            "avg(CAST(CAST(runs.reward AS TEXT) AS NUMERIC))",
            "var_samp(CAST(CAST(runs.reward AS TEXT) AS NUMERIC))",
            "json_each_text(CAST",
        ),
    ],
)
def test_each_database_computes_in_its_own_words(
    dialect: str, mean: str, std: str, tags: str
) -> None:
    reward = runs.c.reward

    assert mean in sql(select(_dialect.mean_of(dialect, reward)), dialect)
    assert std in sql(select(_dialect.std_of(dialect, reward)), dialect)
    assert tags in sql(select(_dialect.tag_items(dialect).c.key), dialect)


@pytest.mark.parametrize(("dialect", "locks"), [("sqlite", 0), ("postgresql", 2)])
def test_only_a_database_with_many_writers_needs_locks(dialect: str, locks: int) -> None:
    executed: list[str] = []

    class Recorder:
        """Stands in for a connection: there may be no server to ask."""

        def __init__(self) -> None:
            self.dialect = DIALECTS[dialect]

        def execute(self, statement: ClauseElement) -> None:
            executed.append(sql(statement, dialect))

    connection: Any = Recorder()

    _dialect.lock_host(connection, "here")
    _dialect.lock_schema(connection)

    assert len(executed) == locks
    assert all("pg_advisory_xact_lock(hashtext(" in statement for statement in executed)
