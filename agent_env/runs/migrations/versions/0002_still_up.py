"""Finds the runs of which something is still up, without looking at the others."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the index."""
    op.create_index(
        "ix_runs_still_up",
        "runs",
        ["run_id"],
        sqlite_where=sa.text("still_up <> '[]'"),
        postgresql_where=sa.text("still_up <> '[]'"),
    )
