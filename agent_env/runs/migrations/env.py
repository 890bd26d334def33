"""Runs migrations on the connection, and in the transaction, that ``runs.schema`` hands over."""

from alembic import context

from agent_env.runs.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
