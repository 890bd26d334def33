"""Runs, their steps and messages, and the groups they belong to."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables and their indexes."""
    _create_runs()
    _create_parts()
    op.create_table(
        "run_groups",
        sa.Column("run_group_id", sa.Text(), primary_key=True),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("size", sa.Integer()),
    )
    op.create_index("ix_run_groups_created", "run_groups", ["created_at", "run_group_id"])


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text(), primary_key=True),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("task_version", sa.Text(), nullable=False),
        sa.Column("run_group_id", sa.Text()),
        sa.Column("member_index", sa.Integer()),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("error_type", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("reward", sa.Float()),
        sa.Column("scores", sa.Text(), nullable=False),
        sa.Column("steps_total", sa.Integer(), nullable=False),
        sa.Column("steps_done", sa.Integer(), nullable=False),
        sa.Column("current_step", sa.Text()),
        sa.Column("host", sa.Text()),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True)),
        sa.Column("cancel_requested_by", sa.Text()),
        sa.Column("cancel_requested_reason", sa.Text()),
        sa.Column("still_up", sa.Text(), nullable=False),
        sa.Column("seed", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("model", sa.Text()),
        sa.Column("prompt_tokens", sa.Integer()),
        sa.Column("completion_tokens", sa.Integer()),
        sa.Column("workflow_run_id", sa.Text()),
        sa.Column("namespace", sa.Text(), nullable=False),
    )
    op.create_index("ix_runs_created", "runs", ["created_at", "run_id"])
    op.create_index("ix_runs_status", "runs", ["status", "created_at", "run_id"])
    op.create_index("ix_runs_task", "runs", ["task_id", "status", "created_at", "run_id"])
    op.create_index(
        "ix_runs_group",
        "runs",
        ["run_group_id", "member_index", "created_at", "run_id", "status", "reward"],
        sqlite_where=sa.text("run_group_id IS NOT NULL"),
        postgresql_where=sa.text("run_group_id IS NOT NULL"),
    )
    op.create_index(
        "ix_runs_running",
        "runs",
        ["host"],
        sqlite_where=sa.text("status = 'RUNNING'"),
        postgresql_where=sa.text("status = 'RUNNING'"),
    )


def _create_parts() -> None:
    op.create_table(
        "steps",
        _run_id(),
        sa.Column("epoch", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("step_id", sa.Text(), primary_key=True),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.Column("error_type", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("score", sa.Float()),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("sandboxes", sa.Text(), nullable=False),
        sa.Column("retried", sa.Boolean(), nullable=False),
    )
    op.create_table(
        "messages",
        _run_id(),
        sa.Column("epoch", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("step_id", sa.Text(), primary_key=True),
        sa.Column("seq", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("message", sa.Text(), nullable=False),
    )


def _run_id() -> sa.Column[str]:
    owner = sa.ForeignKey("runs.run_id", ondelete="CASCADE")
    return sa.Column("run_id", sa.Text(), owner, primary_key=True)
