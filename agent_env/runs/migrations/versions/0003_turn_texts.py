"""Keeps what players say in turns until the conversation takes it up."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    owner = sa.ForeignKey("runs.run_id", ondelete="CASCADE")
    op.create_table(
        "turn_texts",
        sa.Column("run_id", sa.Text(), owner, primary_key=True),
        sa.Column("digest", sa.Text(), primary_key=True),
        sa.Column("text", sa.Text(), nullable=False),
    )
