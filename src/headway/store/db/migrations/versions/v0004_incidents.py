"""What nodes' kernel logs said about their GPUs, and the faults that follow from it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "signals",
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("id", sa.String(128), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("node", sa.String(64), nullable=False),
        sa.Column("code", sa.Integer(), nullable=False),
        sa.Column("gpu", sa.Integer()),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("job", sa.Integer()),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "id", name="pk_signals"),
    )
    op.create_index("ix_signals_cluster_node_at", "signals", ["cluster", "node", "at"])
    op.create_table(
        "incidents",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(64), nullable=False),
        sa.Column("node", sa.String(64), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("opened_at", sa.Float(), nullable=False),
        sa.Column("last_signal_at", sa.Float(), nullable=False),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("fault_at", sa.Float(), nullable=False),
        sa.Column("score", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_incidents"),
    )
    op.create_index("ix_incidents_cluster_node", "incidents", ["cluster", "node"])
    op.create_table(
        "incident_steps",
        sa.Column("incident", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("actor", sa.String(64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["incident"], ["incidents.number"], name="fk_incident_steps_incident_incidents", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("incident", "seq", name="pk_incident_steps"),
    )
    op.create_table(
        "incident_jobs",
        sa.Column("incident", sa.Integer(), nullable=False),
        sa.Column("job", sa.Integer(), nullable=False),
        sa.Column("requeued_at", sa.Float(), nullable=False),
        sa.Column("running_at", sa.Float()),
        sa.Column("step_at", sa.Float()),
        sa.ForeignKeyConstraint(
            ["incident"], ["incidents.number"], name="fk_incident_jobs_incident_incidents", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("incident", "job", name="pk_incident_jobs"),
    )


def downgrade() -> None:
    op.drop_table("incident_jobs")
    op.drop_table("incident_steps")
    op.drop_table("incidents")
    op.drop_table("signals")
