"""Runs of jobs, lives of machines, states of nodes, closed invoices, budgets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_KIND = ("cluster", "team", "user", "partition", "gpu_type", "group")
_REPORT = (
    "kind", "start", "end", "units", "gpus", "cpus", "first", "eligible", "lost_s", "idle_s", "measured_s", "energy_j",
)  # fmt: skip


def _words(*names: str, length: int = 64) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.String(length), nullable=False) for name in names]


def _numbers(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), nullable=False) for name in names]


def _counts(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.Integer(), nullable=False) for name in names]


def _measured(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), nullable=False, server_default="0") for name in names]


def upgrade() -> None:
    op.create_table(
        "run_kinds",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        *_words(*_KIND),
        *_counts("per_node"),
        sa.PrimaryKeyConstraint("id", name="pk_run_kinds"),
    )
    op.create_index("uq_run_kinds", "run_kinds", [*_KIND, "per_node"], unique=True)
    op.create_table(
        "runs",
        *_words("cluster"),
        *_numbers("job", "start"),
        *_words("group"),
        *_counts("kind", "first"),
        *_numbers("end", "submit", "eligible"),
        *_words("qos"),
        *_words("state", length=32),
        sa.Column("nodes", sa.Text(), nullable=False),
        *_counts("node_count", "gpus", "cpus", "units"),
        *_numbers("memory_mib"),
        sa.Column("time_limit_s", sa.BigInteger()),
        *_numbers("used_cpu_s", "used_memory_mib", "array_job", "lost_s"),
        *_measured("measured_s", "idle_s", "energy_j"),
        sa.Column("saved_at", sa.Float()),
        sa.ForeignKeyConstraint(["kind"], ["run_kinds.id"], name="fk_runs_kind_run_kinds"),
        sa.PrimaryKeyConstraint("cluster", "job", "start", "group", name="pk_runs"),
    )
    op.create_index("ix_runs_report", "runs", list(_REPORT))
    op.create_index("ix_runs_ended", "runs", ["kind", "end", "start", "gpus"])
    op.create_index("ix_runs_started", "runs", ["cluster", "start"])
    running = sa.text('"end" = 0')
    op.create_index("ix_runs_open", "runs", ["cluster", "start"], sqlite_where=running, postgresql_where=running)
    op.create_table(
        "run_nodes",
        *_words("cluster", "node"),
        *_numbers("start", "job", "end"),
        *_counts("units", "per_node"),
        sa.PrimaryKeyConstraint("cluster", "node", "start", "job", name="pk_run_nodes"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "lives",
        *_words("cluster", "machine"),
        *_numbers("began"),
        *_words("group"),
        *_numbers("ended", "seen"),
        sa.PrimaryKeyConstraint("cluster", "machine", "began", name="pk_lives"),
    )
    op.create_table(
        "node_spans",
        *_words("cluster", "node"),
        *_words("kind", length=16),
        *_numbers("began", "ended"),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "node", "kind", "began", name="pk_node_spans"),
    )
    op.create_table(
        "ledger_marks",
        *_words("cluster"),
        *_numbers("collected_to", "measured_to", "swept_at", "longest_s"),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name="pk_ledger_marks"),
    )
    op.create_table(
        "invoices",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        *_words("cluster"),
        *_words("period", length=16),
        sa.Column("closed_at", sa.Float(), nullable=False),
        *_words("closed_by"),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_invoices"),
    )
    op.create_index("uq_invoices_period", "invoices", ["cluster", "period"], unique=True)
    op.create_table(
        "budget_notes",
        *_words("cluster", "team"),
        *_numbers("start"),
        *_words("level", length=16),
        sa.Column("capped", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "team", "start", name="pk_budget_notes"),
    )


def downgrade() -> None:
    for name in ("budget_notes", "invoices", "ledger_marks", "node_spans", "lives", "run_nodes", "runs", "run_kinds"):
        op.drop_table(name)
