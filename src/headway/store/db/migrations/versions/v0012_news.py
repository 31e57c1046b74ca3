"""What people are told once by the alert channels, what trainings said of their checkpoints, and reserved machines."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("prices", sa.Column("reserved", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "job_saves",
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.Column("saves", sa.Integer(), nullable=False),
        sa.Column("stalled_s", sa.Float(), nullable=False),
        sa.Column("up_s", sa.Float(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "job", name="pk_job_saves"),
    )
    op.create_table(
        "news",
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("told_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "key", name="pk_news"),
    )


def downgrade() -> None:
    op.drop_table("news")
    op.drop_table("job_saves")
    op.drop_column("prices", "reserved")
