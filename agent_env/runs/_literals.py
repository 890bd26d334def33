"""What is written into a statement as it is, so that the database can plan by it."""

from sqlalchemy import ColumnElement, Integer, literal, literal_column

from agent_env.runs.tables import runs
from agent_env.status import RunStatus


def has_status(status: RunStatus) -> ColumnElement[bool]:
    """Whether a run has this status.

    Of a parameter SQLite can't tell that a partial index holds these rows, nor PostgreSQL how few
    they are: it would plan anew each time.
    """
    return runs.c.status == literal_column(f"'{status}'")


def at_most(limit: int) -> ColumnElement[int]:
    """So many rows: PostgreSQL takes a parameter for a tenth of all rows, and plans anew."""
    return literal(limit, Integer, literal_execute=True)
