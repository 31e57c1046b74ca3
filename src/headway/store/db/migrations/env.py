"""Alembic's entry point. It runs on the connection passed by store.db.engine."""

from __future__ import annotations

from alembic import context

from headway.store.db.metadata import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
