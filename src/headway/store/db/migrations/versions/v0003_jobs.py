"""What was submitted, with what and from where, and the pipelines that jobs belong to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("person", sa.String(64), nullable=False),
        sa.Column("user", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=False),
        sa.Column("pipeline", sa.String(32), nullable=False),
        sa.Column("step", sa.String(64), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_jobs"),
    )
    op.create_index("ix_jobs_cluster_job", "jobs", ["cluster", "job_id"])
    op.create_index("ix_jobs_pipeline", "jobs", ["pipeline"])
    op.create_table(
        "pipelines",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("person", sa.String(64), nullable=False),
        sa.Column("user", sa.String(64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("workdir", sa.Text(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pipelines"),
    )
    op.create_index("ix_pipelines_cluster", "pipelines", ["cluster"])


def downgrade() -> None:
    op.drop_table("pipelines")
    op.drop_table("jobs")
