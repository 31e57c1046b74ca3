"""Versions of datasets, and the jobs whose lineage names them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "datasets",
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("person", sa.String(64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("checked_at", sa.Float()),
        sa.Column("damage", sa.Text(), nullable=False),
        sa.Column("removed_at", sa.Float()),
        sa.Column("removed_by", sa.String(64), nullable=False),
        sa.Column("forced", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "name", "number", name="pk_datasets"),
    )
    op.create_table(
        "job_datasets",
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "name", "number", "job_id", name="pk_job_datasets"),
    )


def downgrade() -> None:
    op.drop_table("job_datasets")
    op.drop_table("datasets")
