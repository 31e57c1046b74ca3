"""Which node image a cluster's machines are made from, where that is not the present one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_images",
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("pinned", sa.String(200), nullable=False),
        sa.Column("before", sa.String(200), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name="pk_node_images"),
    )


def downgrade() -> None:
    op.drop_table("node_images")
