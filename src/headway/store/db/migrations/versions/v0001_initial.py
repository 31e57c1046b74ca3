"""All tables, and triggers that refuse changes to the audit trail."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SQLITE_AUDIT_TRIGGER = """
CREATE TRIGGER audit_no_{word} BEFORE {word} ON audit
BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END
"""
POSTGRES_AUDIT_FUNCTION = """
CREATE FUNCTION headway_audit_stays() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the audit trail is append-only'; END $$
"""
POSTGRES_AUDIT_TRIGGER = """
CREATE TRIGGER audit_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
FOR EACH STATEMENT EXECUTE FUNCTION headway_audit_stays()
"""


def upgrade() -> None:
    """Creates all tables, indexes and triggers."""
    _create_tables()
    if op.get_bind().dialect.name == "postgresql":
        op.execute(POSTGRES_AUDIT_FUNCTION)
        op.execute(POSTGRES_AUDIT_TRIGGER)
        return
    for word in ("UPDATE", "DELETE"):
        op.execute(SQLITE_AUDIT_TRIGGER.format(word=word))


def _create_tables() -> None:
    op.create_table(
        "answers",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("request", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("server", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_answers"),
    )
    op.create_index("ix_answers_at", "answers", ["at"], unique=False)
    op.create_table(
        "audit",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.String(length=200), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("address", sa.String(length=64), server_default="", nullable=False),
        sa.Column("result", sa.String(length=16), server_default="ok", nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit"),
    )
    op.create_index("ix_audit_at", "audit", ["at"], unique=False)
    op.create_index("ix_audit_person", "audit", ["person"], unique=False)
    op.create_table(
        "budget_notes",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("team", sa.String(length=64), nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("level", sa.String(length=16), nullable=False),
        sa.Column("capped", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "team", "start", name="pk_budget_notes"),
    )
    op.create_table(
        "cluster_users",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "name", name="pk_cluster_users"),
    )
    op.create_table(
        "clusters",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("drift", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_clusters"),
    )
    op.create_table(
        "datasets",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("checked_at", sa.Float(), nullable=True),
        sa.Column("damage", sa.Text(), nullable=False),
        sa.Column("removed_at", sa.Float(), nullable=True),
        sa.Column("removed_by", sa.String(length=64), nullable=False),
        sa.Column("forced", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "name", "number", name="pk_datasets"),
    )
    op.create_table(
        "due_user_changes",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("cause", sa.String(length=16), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("done_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "user", name="pk_due_user_changes"),
    )
    op.create_table(
        "environments",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("python", sa.String(length=32), nullable=False),
        sa.Column("packages", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.String(length=200), nullable=False),
        sa.Column("request", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("lock", sa.Text(), nullable=False),
        sa.Column("removed_at", sa.Float(), nullable=True),
        sa.Column("removed_by", sa.String(length=64), nullable=False),
        sa.Column("forced", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "name", "number", name="pk_environments"),
    )
    op.create_table(
        "former_job_secrets",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_former_job_secrets"),
    )
    op.create_index("ix_former_job_secrets_owner", "former_job_secrets", ["cluster", "owner"], unique=False)
    op.create_table(
        "allocated_gpu_days",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("day", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("gpu_type", sa.String(length=64), nullable=False),
        sa.Column("group", sa.String(length=64), nullable=False),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "day", "gpu_type", "group", name="pk_allocated_gpu_days"),
    )
    op.create_table(
        "incidents",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("opened_at", sa.Float(), nullable=False),
        sa.Column("last_signal_at", sa.Float(), nullable=False),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("fault_at", sa.Float(), nullable=False),
        sa.Column("score", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_incidents"),
    )
    op.create_index("ix_incidents_cluster_node", "incidents", ["cluster", "node"], unique=False)
    op.create_table(
        "invoices",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("period", sa.String(length=16), nullable=False),
        sa.Column("closed_at", sa.Float(), nullable=False),
        sa.Column("closed_by", sa.String(length=64), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_invoices"),
    )
    op.create_index("uq_invoices_period", "invoices", ["cluster", "period"], unique=True)
    op.create_table(
        "job_datasets",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "name", "number", "job_id", name="pk_job_datasets"),
    )
    op.create_table(
        "job_environments",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "name", "number", "job_id", name="pk_job_environments"),
    )
    op.create_table(
        "job_saves",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("job", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("saves", sa.Integer(), nullable=False),
        sa.Column("stalled_s", sa.Float(), nullable=False),
        sa.Column("up_s", sa.Float(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "job", name="pk_job_saves"),
    )
    op.create_table(
        "job_secret_deliveries",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "id", name="pk_job_secret_deliveries"),
    )
    op.create_table(
        "job_secret_revisions",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name="pk_job_secret_revisions"),
    )
    op.create_table(
        "job_secrets",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "kind", "owner", "name", name="pk_job_secrets"),
    )
    op.create_table(
        "jobs",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=False),
        sa.Column("pipeline", sa.String(length=32), nullable=False),
        sa.Column("step", sa.String(length=64), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_jobs"),
    )
    op.create_index("ix_jobs_cluster_job", "jobs", ["cluster", "job_id"], unique=False)
    op.create_index(
        "ix_jobs_notebooks",
        "jobs",
        ["cluster", "job_id", "at"],
        unique=False,
        sqlite_where=sa.text("kind = 'notebook'"),
        postgresql_where=sa.text("kind = 'notebook'"),
    )
    op.create_index("ix_jobs_pipeline", "jobs", ["pipeline"], unique=False)
    op.create_table(
        "ledger_marks",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("collected_to", sa.BigInteger(), nullable=False),
        sa.Column("measured_to", sa.BigInteger(), nullable=False),
        sa.Column("swept_at", sa.BigInteger(), nullable=False),
        sa.Column("longest_s", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name="pk_ledger_marks"),
    )
    op.create_table(
        "lives",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("machine", sa.String(length=64), nullable=False),
        sa.Column("began", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("group", sa.String(length=64), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "machine", "began", name="pk_lives"),
    )
    op.create_table(
        "rentals",
        sa.Column("instance", sa.String(length=64), nullable=False),
        sa.Column("launched_at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cloud", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("machine", sa.String(length=64), nullable=False),
        sa.Column("instance_type", sa.String(length=64), nullable=False),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("purchase", sa.String(length=16), nullable=False),
        sa.Column("usd_per_hour", sa.String(length=32), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("taken_back", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("instance", "launched_at", name="pk_rentals"),
    )
    op.create_table(
        "seen_prices",
        sa.Column("cloud", sa.String(length=32), nullable=False),
        sa.Column("instance_type", sa.String(length=64), nullable=False),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("purchase", sa.String(length=16), nullable=False),
        sa.Column("since", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("usd_per_hour", sa.String(length=32), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cloud", "instance_type", "zone", "purchase", "since", name="pk_seen_prices"),
    )
    op.create_index("ix_rentals_cluster", "rentals", ["cluster"], unique=False)
    op.create_table(
        "locked_users",
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("user", name="pk_locked_users"),
    )
    op.create_table(
        "notifications",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("told_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "key", name="pk_notifications"),
    )
    op.create_table(
        "node_images",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("pinned", sa.String(length=200), nullable=False),
        sa.Column("before", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name="pk_node_images"),
    )
    op.create_table(
        "node_spans",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("began", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "node", "kind", "began", name="pk_node_spans"),
    )
    op.create_table(
        "notebooks",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("idle_s", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notebooks"),
    )
    op.create_index("ix_notebooks_cluster", "notebooks", ["cluster"], unique=False)
    op.create_table(
        "oidc_flows",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("nonce", sa.String(length=64), nullable=False),
        sa.Column("verifier", sa.String(length=128), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("again", sa.Boolean(), nullable=False),
        sa.Column("next_path", sa.String(length=500), nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_oidc_flows"),
    )
    op.create_table(
        "operations",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=80), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("lease_owner", sa.String(length=200), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("kept", sa.JSON(), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_operations"),
        sa.UniqueConstraint("id", name="uq_operations_id"),
    )
    op.create_index("ix_operations_cluster_state", "operations", ["cluster", "state"], unique=False)
    op.create_index("ix_operations_key", "operations", ["key"], unique=True)
    op.create_index(
        "uq_operations_one_running",
        "operations",
        ["cluster", "subject"],
        unique=True,
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_table(
        "people",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=True),
        sa.Column("subject", sa.String(length=500), nullable=True),
        sa.Column("provider_teams", sa.JSON(), server_default="[]", nullable=False),
        sa.Column("disabled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_people"),
    )
    op.create_index("uq_people_subject", "people", ["subject"], unique=True)
    op.create_table(
        "pipelines",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("workdir", sa.Text(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pipelines"),
    )
    op.create_index("ix_pipelines_cluster", "pipelines", ["cluster"], unique=False)
    op.create_table(
        "prices",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("group", sa.String(length=64), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("usd_per_hour", sa.String(length=32), nullable=False),
        sa.Column("spot", sa.Boolean(), nullable=False),
        sa.Column("reserved", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("cluster", "group", "since", name="pk_prices"),
    )
    op.create_table(
        "refills",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("team", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "team", name="pk_refills"),
    )
    op.create_table(
        "run_kinds",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("team", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("partition", sa.String(length=64), nullable=False),
        sa.Column("gpu_type", sa.String(length=64), nullable=False),
        sa.Column("group", sa.String(length=64), nullable=False),
        sa.Column("per_node", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_run_kinds"),
    )
    op.create_index(
        "uq_run_kinds",
        "run_kinds",
        ["cluster", "team", "user", "partition", "gpu_type", "group", "per_node"],
        unique=True,
    )
    op.create_table(
        "run_nodes",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("units", sa.Integer(), nullable=False),
        sa.Column("per_node", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "node", "start", "job", name="pk_run_nodes"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "secrets",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "name", name="pk_secrets"),
    )
    op.create_table(
        "server_values",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_server_values"),
    )
    op.create_table(
        "signals",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("code", sa.Integer(), nullable=False),
        sa.Column("gpu", sa.Integer(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("job", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "id", name="pk_signals"),
    )
    op.create_index("ix_signals_cluster_node_at", "signals", ["cluster", "node", "at"], unique=False)
    op.create_table(
        "summed_days",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("what", sa.String(length=8), nullable=False),
        sa.Column("day", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_end", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "what", "day", name="pk_summed_days"),
    )
    op.create_table(
        "touched_days",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("day", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "day", "node", name="pk_touched_days"),
    )
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
    )
    op.create_index("ix_sweeps_cluster_at", "sweeps", ["cluster", "at"], unique=False)
    op.create_index("ix_sweeps_ended_at", "sweeps", ["ended_at"], unique=False)
    op.create_table(
        "trials",
        sa.Column("sweep", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("rungs", sa.JSON(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("earlier_s", sa.Float(), nullable=False),
        sa.Column("run_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("sweep", "number", name="pk_trials"),
    )
    op.create_index("ix_trials_cluster", "trials", ["cluster"], unique=False)
    op.create_table(
        "services",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("team", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("least", sa.Integer(), nullable=False),
        sa.Column("most", sa.Integer(), nullable=False),
        sa.Column("wanted", sa.Integer(), nullable=False),
        sa.Column("low_since", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_services"),
    )
    op.create_index("ix_services_cluster_ended_at", "services", ["cluster", "ended_at"], unique=False)
    op.create_table(
        "service_replicas",
        sa.Column("service", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.Column("healthy_at", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("service", "number", name="pk_service_replicas"),
    )
    op.create_index("ix_service_replicas_cluster", "service_replicas", ["cluster"], unique=False)
    op.create_table(
        "service_keys",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("service", sa.String(length=160), nullable=False),
        sa.Column("label", sa.String(length=200), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.Column("per_minute", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_service_keys"),
    )
    op.create_index("ix_service_keys_cluster", "service_keys", ["cluster"], unique=False)
    op.create_table(
        "service_events",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("service", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_service_events"),
    )
    op.create_index("ix_service_events_service", "service_events", ["service", "number"], unique=False)
    op.create_table(
        "service_minutes",
        sa.Column("service", sa.String(length=32), nullable=False),
        sa.Column("minute", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("service", "minute", "version", name="pk_service_minutes"),
    )
    op.create_table(
        "service_readings",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("after", sa.String(length=64), nullable=False),
        sa.Column("counters", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name="pk_service_readings"),
    )
    op.create_table(
        "batches",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("submission", sa.Integer(), nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("progress", sa.JSON(), nullable=False),
        sa.Column("operation", sa.String(length=64), nullable=False),
        sa.Column("dataset", sa.String(length=64), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_batches"),
    )
    op.create_index("ix_batches_cluster_at", "batches", ["cluster", "at"], unique=False)
    op.create_index("ix_batches_ended_at", "batches", ["ended_at"], unique=False)
    op.create_table(
        "promotions",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("team", sa.String(length=64), nullable=False),
        sa.Column("model", sa.String(length=256), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("alias", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("files", sa.String(length=64), nullable=False),
        sa.Column("jobs", sa.JSON(), nullable=False),
        sa.Column("results", sa.JSON(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_promotions"),
    )
    op.create_index("ix_promotions_cluster_at", "promotions", ["cluster", "at"], unique=False)
    op.create_index("ix_promotions_ended_at", "promotions", ["ended_at"], unique=False)
    op.create_table(
        "model_approvals",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("team", sa.String(length=64), nullable=False),
        sa.Column("model", sa.String(length=256), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("roles", sa.JSON(), nullable=False),
        sa.Column("files", sa.String(length=64), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "team", "model", "version", "name", "person", name="pk_model_approvals"),
    )
    op.create_table(
        "required_gates",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("team", sa.String(length=64), nullable=False),
        sa.Column("alias", sa.String(length=64), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "team", "alias", name="pk_required_gates"),
    )
    op.create_table(
        "pipeline_schedules",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("next_at", sa.Float(), nullable=True),
        sa.Column("dataset", sa.String(length=64), nullable=False),
        sa.Column("seen", sa.Integer(), nullable=False),
        sa.Column("last", sa.String(length=32), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pipeline_schedules"),
    )
    op.create_index("ix_pipeline_schedules_cluster", "pipeline_schedules", ["cluster"], unique=False)
    op.create_table(
        "training_tags",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tag", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "job_id", "tag", name="pk_training_tags"),
    )
    op.create_table(
        "trainings",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("label", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=False),
        sa.Column("team", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("reported_at", sa.Float(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("note", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("cluster", "job_id", name="pk_trainings"),
    )
    op.create_table(
        "uids",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("uid", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_uids"),
        sa.UniqueConstraint("uid", name="uq_uids_uid"),
    )
    op.create_table(
        "volume_speeds",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("path", sa.String(length=500), nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("mib", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("write_mib_s", sa.Float(), nullable=False),
        sa.Column("read_mib_s", sa.Float(), nullable=False),
        sa.Column("checkpoint_mib_s", sa.Float(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "path", name="pk_volume_speeds"),
    )
    op.create_table(
        "operation_results",
        sa.Column("operation", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("operation", name="pk_operation_results"),
    )
    op.create_index(
        "ix_operation_results_cluster_kind_at", "operation_results", ["cluster", "kind", "at"], unique=False
    )
    op.create_table(
        "events",
        sa.Column("operation", sa.String(length=32), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("step", sa.String(length=200), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("level", sa.String(length=16), nullable=False),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["operation"], ["operations.id"], name="fk_events_operation_operations", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("operation", "seq", name="pk_events"),
    )
    op.create_table(
        "incident_jobs",
        sa.Column("incident", sa.Integer(), nullable=False),
        sa.Column("job", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("requeued_at", sa.Float(), nullable=False),
        sa.Column("running_at", sa.Float(), nullable=True),
        sa.Column("step_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["incident"], ["incidents.number"], name="fk_incident_jobs_incident_incidents", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("incident", "job", name="pk_incident_jobs"),
    )
    op.create_table(
        "incident_steps",
        sa.Column("incident", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("actor", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["incident"], ["incidents.number"], name="fk_incident_steps_incident_incidents", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("incident", "seq", name="pk_incident_steps"),
    )
    op.create_table(
        "run_days",
        sa.Column("kind", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("day", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("gpu_s", sa.BigInteger(), nullable=False),
        sa.Column("cpu_s", sa.BigInteger(), nullable=False),
        sa.Column("lost_gpu_s", sa.BigInteger(), nullable=False),
        sa.Column("idle_gpu_s", sa.BigInteger(), nullable=False),
        sa.Column("waited_s", sa.BigInteger(), nullable=False),
        sa.Column("waited_gpu_s", sa.BigInteger(), nullable=False),
        sa.Column("energy_j", sa.BigInteger(), nullable=False),
        sa.Column("unmeasured_gpu_s", sa.BigInteger(), nullable=False),
        sa.Column("unmeasured_cpu_s", sa.BigInteger(), nullable=False),
        sa.Column("unit_s", sa.BigInteger(), nullable=False),
        sa.Column("lost_unit_s", sa.BigInteger(), nullable=False),
        sa.Column("idle_unit_s", sa.BigInteger(), nullable=False),
        sa.Column("last_end", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["kind"], ["run_kinds.id"], name="fk_run_days_kind_run_kinds"),
        sa.PrimaryKeyConstraint("kind", "day", name="pk_run_days"),
    )
    op.create_table(
        "runs",
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("job", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("group", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.Integer(), nullable=False),
        sa.Column("first", sa.Integer(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("submit", sa.BigInteger(), nullable=False),
        sa.Column("eligible", sa.BigInteger(), nullable=False),
        sa.Column("qos", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("node_count", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Float(), nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("units", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("time_limit_s", sa.BigInteger(), nullable=True),
        sa.Column("used_cpu_s", sa.BigInteger(), nullable=False),
        sa.Column("used_memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("array_job", sa.BigInteger(), nullable=False),
        sa.Column("lost_s", sa.BigInteger(), nullable=False),
        sa.Column("measured_s", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("idle_s", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("energy_j", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cpu_measured_s", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("saved_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["kind"], ["run_kinds.id"], name="fk_runs_kind_run_kinds"),
        sa.PrimaryKeyConstraint("cluster", "job", "start", "group", name="pk_runs"),
    )
    op.create_index("ix_runs_ended", "runs", ["kind", "end", "start", "gpus"], unique=False)
    op.create_index(
        "ix_runs_lost",
        "runs",
        ["kind", "start", "end", "state", "lost_s", "units", "gpus", "job", "nodes"],
        unique=False,
        sqlite_where=sa.text("lost_s > 0"),
        postgresql_where=sa.text("lost_s > 0"),
    )
    op.create_index(
        "ix_runs_open",
        "runs",
        ["cluster", "start"],
        unique=False,
        sqlite_where=sa.text('"end" = 0'),
        postgresql_where=sa.text('"end" = 0'),
    )
    op.create_index(
        "ix_runs_report",
        "runs",
        [
            "kind",
            "start",
            "end",
            "units",
            "gpus",
            "cpus",
            "first",
            "eligible",
            "lost_s",
            "idle_s",
            "measured_s",
            "energy_j",
            "cpu_measured_s",
        ],
        unique=False,
    )
    op.create_index("ix_runs_started", "runs", ["cluster", "start"], unique=False)
    op.create_table(
        "provisioned_groups",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("display_name", sa.String(length=200), nullable=False),
        sa.Column("external_id", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_provisioned_groups"),
    )
    op.create_table(
        "provisioned_users",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("user_name", sa.String(length=200), nullable=False),
        sa.Column("external_id", sa.String(length=200), nullable=False),
        sa.Column("attributes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("groups_version", sa.Integer(), server_default="0", nullable=False),
        sa.Column("rights_version", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["person"], ["people.name"], name="fk_provisioned_users_person_people", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_provisioned_users"),
        sa.UniqueConstraint("person", name="uq_provisioned_users_person"),
    )
    op.create_table(
        "provisioned_members",
        sa.Column("group", sa.String(length=32), nullable=False),
        sa.Column("user", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["group"],
            ["provisioned_groups.id"],
            name="fk_provisioned_members_group_provisioned_groups",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user"],
            ["provisioned_users.id"],
            name="fk_provisioned_members_user_provisioned_users",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("group", "user", name="pk_provisioned_members"),
    )
    op.create_index("ix_provisioned_members_user", "provisioned_members", ["user"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("last_used_at", sa.Float(), nullable=False),
        sa.Column("how", sa.String(length=16), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("browser", sa.String(length=200), nullable=False),
        sa.Column("authenticated_at", sa.Float(), nullable=False),
        sa.Column("provider_session", sa.String(length=255), nullable=True),
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["person"], ["people.name"], name="fk_sessions_person_people", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("hash", name="pk_sessions"),
        sa.UniqueConstraint("id", name="uq_sessions_id"),
    )
    op.create_index("ix_sessions_person", "sessions", ["person"], unique=False)
    op.create_table(
        "signin_codes",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("authenticated_at", sa.Float(), nullable=False),
        sa.Column("provider_session", sa.String(length=255), nullable=True),
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["person"], ["people.name"], name="fk_signin_codes_person_people", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("hash", name="pk_signin_codes"),
    )
    op.create_table(
        "used_logout_tokens",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_used_logout_tokens"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("label", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("last_used_at", sa.Float(), nullable=True),
        sa.Column("scopes", sa.String(length=64), server_default="all", nullable=False),
        sa.Column("cluster", sa.String(length=64), server_default="", nullable=False),
        sa.Column("provider_session", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(["person"], ["people.name"], name="fk_tokens_person_people", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("hash", name="uq_tokens_hash"),
    )
    op.create_index("ix_tokens_person", "tokens", ["person"], unique=False)
