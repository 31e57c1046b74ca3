"""For how much of what a run held the energy counters of its nodes were read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_REPORT = [
    "kind", "start", "end", "units", "gpus", "cpus", "first", "eligible", "lost_s", "idle_s", "measured_s", "energy_j",
]  # fmt: skip


def upgrade() -> None:
    op.add_column("runs", sa.Column("cpu_measured_s", sa.BigInteger(), nullable=False, server_default="0"))
    op.drop_index("ix_runs_report", "runs")
    op.create_index("ix_runs_report", "runs", [*_REPORT, "cpu_measured_s"])


def downgrade() -> None:
    op.drop_index("ix_runs_report", "runs")
    op.drop_column("runs", "cpu_measured_s")
    op.create_index("ix_runs_report", "runs", _REPORT)
