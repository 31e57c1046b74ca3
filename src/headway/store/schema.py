"""The tables. Times are unix seconds; documents and errors are JSON; a secret's value never leaves `secrets`."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

HEAD = "0012"  # the newest migration; a test holds it against Alembic's own answer

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

people = Table(
    "people",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("user", String(64)),  # their Linux user; NULL: of their own name, "": none
    Column("subject", String(500)),  # of the sign-in provider: its issuer and its name for them
    Index("uq_people_subject", "subject", unique=True),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("person", String(64), ForeignKey("people.name", ondelete="CASCADE"), nullable=False, index=True),
    Column("label", String(200), nullable=False, default=""),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("last_used_at", Float),
    Column("scopes", String(64), nullable=False, server_default="all"),  # words, a space between
    Column("cluster", String(64), nullable=False, server_default=""),  # "" = every one
)

sessions = Table(
    "sessions",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("person", String(64), ForeignKey("people.name", ondelete="CASCADE"), nullable=False, index=True),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
)

signin_codes = Table(
    "signin_codes",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("person", String(64), ForeignKey("people.name", ondelete="CASCADE"), nullable=False),
    Column("expires_at", Float, nullable=False),
)

# Browsers that are away at the sign-in provider.
oidc_flows = Table(
    "oidc_flows",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("nonce", String(64), nullable=False),
    Column("verifier", String(128), nullable=False),
    Column("expires_at", Float, nullable=False),
)

clusters = Table(
    "clusters",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("document", JSON, nullable=False),
    Column("summary", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("owner", String(64), nullable=False),
    Column("created_at", Float, nullable=False),
)

# What outlives the cluster's row: kept data needs its keys again, and a uid is never given to another name.
secrets = Table(
    "secrets",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("value", Text, nullable=False),
)

uids = Table(
    "uids",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("uid", Integer, nullable=False, unique=True),
)

refills = Table(
    "refills",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("team", String(64), primary_key=True),
    Column("at", Float, nullable=False),
)

cluster_users = Table(
    "cluster_users",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
)

operations = Table(
    "operations",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),  # the order they were asked for
    Column("id", String(32), nullable=False, unique=True),
    Column("cluster", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("person", String(64), nullable=False),
    Column("document", JSON, nullable=False),
    Column("params", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("lease_owner", String(200), nullable=False, default=""),
    Column("lease_until", Float, nullable=False, default=0.0),
    Column("attempts", Integer, nullable=False, default=0),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    Column("error", JSON),
    Column("kept", JSON, nullable=False),
    Index("ix_operations_cluster_state", "cluster", "state"),
    # The database itself refuses to let two operations run on one cluster.
    Index(
        "uq_operations_one_running",
        "cluster",
        unique=True,
        sqlite_where=text("state = 'running'"),
        postgresql_where=text("state = 'running'"),
    ),
)

events = Table(
    "events",
    metadata,
    Column("operation", String(32), ForeignKey("operations.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("step", String(200), nullable=False),
    Column("text", Text, nullable=False),
    Column("level", String(16), nullable=False),
    Column("done", Boolean, nullable=False),
    Column("seconds", Float),
)

jobs = Table(
    "jobs",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("cluster", String(64), nullable=False),
    Column("job_id", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("person", String(64), nullable=False),
    Column("user", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("parent", Integer, nullable=False),
    Column("pipeline", String(32), nullable=False),
    Column("step", String(64), nullable=False),
    Column("request", JSON, nullable=False),
    Column("facts", JSON, nullable=False),
    Index("ix_jobs_cluster_job", "cluster", "job_id"),
    Index("ix_jobs_pipeline", "pipeline"),
)

pipelines = Table(
    "pipelines",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("cluster", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("user", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("workdir", Text, nullable=False),
    Column("document", JSON, nullable=False),
    Index("ix_pipelines_cluster", "cluster"),
)

# What nodes' kernel logs said, each line once, and the faults that follow from it.
signals = Table(
    "signals",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("at", Float, nullable=False),
    Column("node", String(64), nullable=False),
    Column("code", Integer, nullable=False),
    Column("gpu", Integer),
    Column("text", Text, nullable=False),
    Column("job", Integer),
    Column("kind", String(32), nullable=False),
    Column("action", String(16), nullable=False),
    Index("ix_signals_cluster_node_at", "cluster", "node", "at"),
)

incidents = Table(
    "incidents",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("cluster", String(64), nullable=False),
    Column("node", String(64), nullable=False),
    Column("what", Text, nullable=False),
    Column("action", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("opened_at", Float, nullable=False),
    Column("last_signal_at", Float, nullable=False),
    Column("drained", Boolean, nullable=False),
    Column("fault_at", Float, nullable=False),
    Column("score", Integer, nullable=False),
    Index("ix_incidents_cluster_node", "cluster", "node"),
)

incident_steps = Table(
    "incident_steps",
    metadata,
    Column("incident", Integer, ForeignKey("incidents.number", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("state", String(16), nullable=False),
    Column("actor", String(64), nullable=False),
    Column("text", Text, nullable=False),
    Column("evidence", JSON, nullable=False),
)

# Jobs that an incident sent back to the queue, and when each went on.
incident_jobs = Table(
    "incident_jobs",
    metadata,
    Column("incident", Integer, ForeignKey("incidents.number", ondelete="CASCADE"), primary_key=True),
    Column("job", Integer, primary_key=True, autoincrement=False),
    Column("requeued_at", Float, nullable=False),
    Column("running_at", Float),
    Column("step_at", Float),
)

# Notebooks, with the secret that their Jupyter takes: nobody but the server and the job knows it.
notebooks = Table(
    "notebooks",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("cluster", String(64), nullable=False, index=True),
    Column("job_id", Integer, nullable=False),
    Column("person", String(64), nullable=False),
    Column("user", String(64), nullable=False),
    Column("folder", Text, nullable=False),
    Column("secret", String(100), nullable=False),
    Column("idle_s", Integer, nullable=False),
    Column("at", Float, nullable=False),
)

# Prices of a node in each group, over time: a row when one changes.
# Tags, by cluster. `pinned`: what new machines are made from; "" = the present image. `before`: what a roll goes back to.
node_images = Table(
    "node_images",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("pinned", String(200), nullable=False),
    Column("before", String(200), nullable=False),
)

prices = Table(
    "prices",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("group", String(64), primary_key=True),
    Column("since", Float, primary_key=True),
    Column("usd_per_hour", String(32), nullable=False),
    Column("spot", Boolean, nullable=False),
    Column("reserved", Integer, nullable=False, server_default="0"),
)

# Whose runs they are and of what. A report asks for the runs of one kind after the other: so each sum is read from an index in
# its order, and nothing is sorted.
run_kinds = Table(
    "run_kinds",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("cluster", String(64), nullable=False),
    Column("team", String(64), nullable=False),
    Column("user", String(64), nullable=False),
    Column("partition", String(64), nullable=False),
    Column("gpu_type", String(64), nullable=False),
    Column("group", String(64), nullable=False),
    Column("per_node", Integer, nullable=False),  # units a node of the group has: GPUs, or CPUs in a group without
    Index(
        "uq_run_kinds", "cluster", "team", "user", "partition", "gpu_type", "group", "per_node", unique=True
    ),
)  # fmt: skip

# Every run of every job as accounting has it, a row for each group it held nodes of. What follows `lost_s` is measured by
# Headway, and accounting never overwrites it. The first index holds all that reports need: they never touch the table.
runs = Table(
    "runs",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("job", BigInteger, primary_key=True, autoincrement=False),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("group", String(64), primary_key=True),
    Column("kind", Integer, ForeignKey("run_kinds.id"), nullable=False),
    Column("first", Integer, nullable=False),  # 1 in one row of each run: what is counted once
    Column("end", BigInteger, nullable=False),  # 0: it runs
    Column("submit", BigInteger, nullable=False),
    Column("eligible", BigInteger, nullable=False),
    Column("qos", String(64), nullable=False),
    Column("state", String(32), nullable=False),
    Column("nodes", Text, nullable=False),
    Column("node_count", Integer, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("units", Integer, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("time_limit_s", BigInteger),
    Column("used_cpu_s", BigInteger, nullable=False),
    Column("used_memory_mib", BigInteger, nullable=False),
    Column("array_job", BigInteger, nullable=False),
    Column("lost_s", BigInteger, nullable=False),  # at its end: done again by a later run
    Column("measured_s", BigInteger, nullable=False, server_default="0"),
    Column("idle_s", BigInteger, nullable=False, server_default="0"),
    Column("energy_j", BigInteger, nullable=False, server_default="0"),
    Column("saved_at", Float),  # when the state was written that the next run went on from
    Index(
        "ix_runs_report", "kind", "start", "end", "units", "gpus", "cpus", "first", "eligible", "lost_s", "idle_s",
        "measured_s", "energy_j",
    ),
    Index("ix_runs_ended", "kind", "end", "start", "gpus"),
    Index("ix_runs_started", "cluster", "start"),
    Index("ix_runs_open", "cluster", "start", sqlite_where=text('"end" = 0'), postgresql_where=text('"end" = 0')),
)  # fmt: skip

# Which runs were on a node, for what a broken one still held.
run_nodes = Table(
    "run_nodes",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("node", String(64), primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("job", BigInteger, primary_key=True, autoincrement=False),
    Column("end", BigInteger, nullable=False),
    Column("units", Integer, nullable=False),
    Column("per_node", Integer, nullable=False),
    sqlite_with_rowid=False,
)

# From when to when a machine was there (end 0: it is), and when it was last seen.
lives = Table(
    "lives",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("machine", String(64), primary_key=True),
    Column("began", BigInteger, primary_key=True, autoincrement=False),
    Column("group", String(64), nullable=False),
    Column("ended", BigInteger, nullable=False),
    Column("seen", BigInteger, nullable=False),
)

# When a node was down, drained or a spare.
node_spans = Table(
    "node_spans",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("node", String(64), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("began", BigInteger, primary_key=True, autoincrement=False),
    Column("ended", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
)

# How far the ledger of a cluster has come.
ledger_marks = Table(
    "ledger_marks",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("collected_to", BigInteger, nullable=False),
    Column("measured_to", BigInteger, nullable=False),
    Column("swept_at", BigInteger, nullable=False),  # late records were last looked for
    Column(
        "longest_s", BigInteger, nullable=False
    ),  # the longest run: who looks for runs of a time starts so much earlier
    Column("error", Text, nullable=False),  # why accounting was not read last time
)

# Closed invoices, with who paid what; never changed.
invoices = Table(
    "invoices",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("cluster", String(64), nullable=False),
    Column("period", String(16), nullable=False),
    Column("closed_at", Float, nullable=False),
    Column("closed_by", String(64), nullable=False),
    Column("document", JSON, nullable=False),
    Index("uq_invoices_period", "cluster", "period", unique=True),
)

# What teams were told of their budgets, and whose jobs wait for the next period.
budget_notes = Table(
    "budget_notes",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("team", String(64), primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),  # of the period
    Column("level", String(16), nullable=False),
    Column("capped", Boolean, nullable=False),
)

# Versions of datasets. A row stays when its version is removed: a number is given once, and lineage names it.
datasets = Table(
    "datasets",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("source", Text, nullable=False),
    Column("person", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("checked_at", Float),
    Column("damage", Text, nullable=False),
    Column("removed_at", Float),
    Column("removed_by", String(64), nullable=False),
    Column("forced", Boolean, nullable=False),
)

# Which jobs' lineage names which version.
job_datasets = Table(
    "job_datasets",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
)

# What trainings said of their checkpoints: of each job, in all.
job_saves = Table(
    "job_saves",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("job", BigInteger, primary_key=True, autoincrement=False),
    Column("saves", Integer, nullable=False),
    Column("stalled_s", Float, nullable=False),
    Column("up_s", Float, nullable=False),
    Column("at", BigInteger, nullable=False),  # when it was heard last
)

# What people are told once, by the alert channels of a cluster: first written here, then told.
news = Table(
    "news",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("title", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("told_at", BigInteger, nullable=False),  # 0: not yet
)

# What was answered to requests that are not to be done twice. The answer can be read with the asker's own token alone.
answers = Table(
    "answers",
    metadata,
    Column("id", String(64), primary_key=True),  # of the asker's token and their key
    Column("request", String(64), nullable=False),
    Column("at", Float, nullable=False, index=True),
    Column("status", Integer, nullable=False),  # 0: being done
    Column("answer", Text, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False, index=True),
    Column("person", String(64), nullable=False),
    Column("action", String(64), nullable=False),
    Column("target", String(200), nullable=False),
    Column("detail", JSON, nullable=False),
    Column("address", String(64), nullable=False, server_default=""),
    Column("result", String(16), nullable=False, server_default="ok"),  # ok | refused | failed
    Index("ix_audit_person", "person"),
)
