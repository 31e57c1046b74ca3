"""Sums of days that are over, which reports read instead of each run. They are made while the server runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_LOST = sa.text("lost_s > 0")
_LOOKED_AT = ["kind", "start", "end", "state", "lost_s", "units", "gpus", "job"]
_SUMS = (
    "runs", "gpu_s", "cpu_s", "lost_gpu_s", "idle_gpu_s", "waited_s", "waited_gpu_s", "energy_j", "unmeasured_gpu_s",
    "unmeasured_cpu_s", "unit_s", "lost_unit_s", "idle_unit_s", "last_end",
)  # fmt: skip


def upgrade() -> None:
    op.create_table(
        "summed_days",
        sa.Column("cluster", sa.String(64), primary_key=True),
        sa.Column("what", sa.String(8), primary_key=True),
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("last_end", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "run_days",
        sa.Column("kind", sa.Integer, sa.ForeignKey("run_kinds.id"), primary_key=True, autoincrement=False),
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _SUMS),
    )
    op.create_table(
        "held_days",
        sa.Column("cluster", sa.String(64), primary_key=True),
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("gpu_type", sa.String(64), primary_key=True),
        sa.Column("group", sa.String(64), primary_key=True),
        sa.Column("seconds", sa.JSON, nullable=False),
    )
    op.create_table(
        "touched_days",
        sa.Column("cluster", sa.String(64), primary_key=True),
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("node", sa.String(64), primary_key=True),
        sa.Column("seconds", sa.JSON, nullable=False),
    )
    _lost([*_LOOKED_AT, "nodes"])


def downgrade() -> None:
    _lost(_LOOKED_AT)
    for table in ("touched_days", "held_days", "run_days", "summed_days"):
        op.drop_table(table)


def _lost(columns: list[str]) -> None:
    op.drop_index("ix_runs_lost", "runs")
    op.create_index("ix_runs_lost", "runs", columns, sqlite_where=_LOST, postgresql_where=_LOST)
