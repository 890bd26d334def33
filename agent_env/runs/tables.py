"""The tables of the run index. No logic; what changes here needs a migration."""

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    text,
)

from agent_env.runs._columns import AnyJson, AnyText, UtcTime

metadata = MetaData()

runs = Table(
    "runs",
    metadata,
    Column("run_id", AnyText, primary_key=True),
    Column("instance_id", AnyText, nullable=False),
    Column("runner", AnyText, nullable=False),
    Column("task_id", AnyText, nullable=False),
    Column("task_version", AnyText, nullable=False),
    # Refers to no row of run_groups: an episode that names a group comes first where it was lost.
    Column("run_group_id", AnyText),
    Column("member_index", Integer),
    Column("status", AnyText, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("started_at", UtcTime),
    Column("finished_at", UtcTime),
    Column("error_type", AnyText),
    Column("error", AnyText),
    Column("reward", Float),
    Column("scores", AnyJson, nullable=False),
    Column("steps_total", Integer, nullable=False),
    Column("steps_done", Integer, nullable=False),
    Column("current_step", AnyText),
    Column("host", AnyText),
    Column("epoch", Integer, nullable=False),
    Column("cancel_requested_at", UtcTime),
    Column("cancel_requested_by", AnyText),
    Column("cancel_requested_reason", AnyText),
    Column("still_up", AnyJson, nullable=False),
    Column("seed", AnyJson, nullable=False),
    Column("tags", AnyJson, nullable=False),
    Column("model", AnyText),
    Column("prompt_tokens", Integer),
    Column("completion_tokens", Integer),
    Column("workflow_run_id", AnyText),
    Column("namespace", AnyText, nullable=False),
)

steps = Table(
    "steps",
    metadata,
    Column("run_id", AnyText, ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    Column("step_id", AnyText, primary_key=True),
    Column("type", AnyText, nullable=False),
    Column("status", AnyText, nullable=False),
    Column("started_at", UtcTime),
    Column("finished_at", UtcTime),
    Column("error_type", AnyText),
    Column("error", AnyText),
    Column("score", Float),
    Column("output", AnyJson, nullable=False),
    Column("sandboxes", AnyJson, nullable=False),
    Column("retried", Boolean, nullable=False),
)

messages = Table(
    "messages",
    metadata,
    Column("run_id", AnyText, ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    Column("step_id", AnyText, primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("message", AnyJson, nullable=False),
)

# What a player said, by its digest, until a turn takes it up; and the tools that turns offer.
turn_texts = Table(
    "turn_texts",
    metadata,
    Column("run_id", AnyText, ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    Column("digest", AnyText, primary_key=True),
    Column("text", AnyText, nullable=False),
)

run_groups = Table(
    "run_groups",
    metadata,
    Column("run_group_id", AnyText, primary_key=True),
    Column("task_id", AnyText, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("size", Integer),
)

_running = text("status = 'RUNNING'")
_grouped = text("run_group_id IS NOT NULL")
has_still_up = text("still_up <> '[]'")

Index("ix_runs_created", runs.c.created_at, runs.c.run_id)
Index("ix_runs_status", runs.c.status, runs.c.created_at, runs.c.run_id)
Index("ix_runs_task", runs.c.task_id, runs.c.status, runs.c.created_at, runs.c.run_id)
# Covers the figures of a group, with a re-run beside what it replaces.
Index(
    "ix_runs_group",
    runs.c.run_group_id,
    runs.c.member_index,
    runs.c.created_at,
    runs.c.run_id,
    runs.c.status,
    runs.c.reward,
    sqlite_where=_grouped,
    postgresql_where=_grouped,
)
Index("ix_runs_running", runs.c.host, sqlite_where=_running, postgresql_where=_running)
Index(
    "ix_runs_still_up",
    runs.c.run_id,
    sqlite_where=has_still_up,
    postgresql_where=has_still_up,
)
Index("ix_run_groups_created", run_groups.c.created_at, run_groups.c.run_group_id)
