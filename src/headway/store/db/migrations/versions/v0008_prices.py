"""What a node of each group costs, over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "prices",
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("group", sa.String(64), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("usd_per_hour", sa.String(32), nullable=False),
        sa.Column("spot", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "group", "since", name="pk_prices"),
    )


def downgrade() -> None:
    op.drop_table("prices")
