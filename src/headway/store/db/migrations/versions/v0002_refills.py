"""When each team's GPU-hours were last set back to zero."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "refills",
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "team", name="pk_refills"),
    )


def downgrade() -> None:
    op.drop_table("refills")
