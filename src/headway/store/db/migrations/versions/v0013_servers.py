"""Keys by which a request that was cut off with its server finds the operation it had queued, and whose request it was; and
how fast volumes were when they were last measured."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operations", sa.Column("key", sa.String(64), nullable=True))
    op.create_index("ix_operations_key", "operations", ["key"], unique=True)
    op.add_column("answers", sa.Column("server", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "volume_speeds",
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("path", sa.String(500), nullable=False),
        sa.Column("node", sa.String(64), nullable=False),
        sa.Column("mib", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("write_mib_s", sa.Float(), nullable=False),
        sa.Column("read_mib_s", sa.Float(), nullable=False),
        sa.Column("checkpoint_mib_s", sa.Float(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "path", name="pk_volume_speeds"),
    )


def downgrade() -> None:
    op.drop_table("volume_speeds")
    op.drop_column("answers", "server")
    op.drop_index("ix_operations_key", "operations")
    op.drop_column("operations", "key")
