"""The tables of clusters: operations, jobs, incidents, datasets, environments, and what servers share. Columns are as in
`store.db.metadata`."""

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
    String,
    Table,
    Text,
    text,
)

from headway.store.db.metadata import metadata

clusters = Table(
    "clusters",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("document", JSON, nullable=False),
    Column("summary", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("owner", String(64), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("drift", JSON(none_as_null=True)),
)

# What all servers on this database share: the digest of the key of its secrets, the name of the session cookie.
server_values = Table(
    "server_values",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

# The next tables outlive the cluster's row: kept data needs its keys again, and a uid is never given to another name.
secrets = Table(
    "secrets",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("sealed", Text, nullable=False),
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
    Column("number", Integer, primary_key=True, autoincrement=True),  # the order in which they were requested
    Column("id", String(32), nullable=False, unique=True),
    Column("cluster", String(64), nullable=False),
    Column("subject", String(80), nullable=False, default=""),  # "" = the whole cluster; see OperationParams.subject
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
    Column("key", String(64), index=True, unique=True),  # idempotency key of the request, if it had one
    Index("ix_operations_cluster_state", "cluster", "state"),
    # The database itself refuses to run two operations on one subject.
    Index(
        "uq_operations_one_running",
        "cluster",
        "subject",
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
    Index(
        "ix_jobs_notebooks",
        "cluster",
        "job_id",
        "at",
        sqlite_where=text("kind = 'notebook'"),
        postgresql_where=text("kind = 'notebook'"),
    ),
    Index("ix_jobs_pipeline", "pipeline"),
)

# Jobs that reported metrics. `metrics`: name -> [step, newest, lowest, highest], null where a value is not finite.
trainings = Table(
    "trainings",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("label", String(64), nullable=False),
    Column("name", Text, nullable=False),
    Column("user", String(64), nullable=False),
    Column("team", String(64), nullable=False),
    Column("state", String(32), nullable=False),
    Column("submitted_at", Float, nullable=False),
    Column("reported_at", Float, nullable=False),
    Column("metrics", JSON, nullable=False),
    Column("note", Text, nullable=False, server_default=""),
)

training_tags = Table(
    "training_tags",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("tag", String(64), primary_key=True),
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

sweeps = Table(
    "sweeps",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("cluster", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("user", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("document", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("why", Text, nullable=False),
    Column("ended_at", Float),
    Index("ix_sweeps_cluster_at", "cluster", "at"),
    Index("ix_sweeps_ended_at", "ended_at"),
)

trials = Table(
    "trials",
    metadata,
    Column("sweep", String(32), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("cluster", String(64), nullable=False),
    Column("parameters", JSON, nullable=False),
    Column("at", Float, nullable=False),
    Column("state", String(16), nullable=False),
    Column("job_id", Integer, nullable=False),
    Column("ended_at", Float),
    Column("step", BigInteger, nullable=False),
    Column("value", Float),
    Column("rungs", JSON, nullable=False),
    Column("why", Text, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("earlier_s", Float, nullable=False),
    Column("run_s", Float, nullable=False),
    Index("ix_trials_cluster", "cluster"),
)

batches = Table(
    "batches",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("cluster", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("user", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("document", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("why", Text, nullable=False),
    Column("submission", Integer, nullable=False),
    Column("submitted_at", Float, nullable=False),
    Column("job_id", Integer, nullable=False),
    Column("progress", JSON, nullable=False),
    Column("operation", String(64), nullable=False),
    Column("dataset", String(64), nullable=False),
    Column("ended_at", Float),
    Index("ix_batches_cluster_at", "cluster", "at"),
    Index("ix_batches_ended_at", "ended_at"),
)

# Symptoms of node faults, such as lines of their kernel logs, each stored once, with the action each one calls for. The
# table keeps the name that it has in backups.
symptoms = Table(
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

# Jobs requeued by an incident, and when each was running again.
incident_jobs = Table(
    "incident_jobs",
    metadata,
    Column("incident", Integer, ForeignKey("incidents.number", ondelete="CASCADE"), primary_key=True),
    Column("job", Integer, primary_key=True, autoincrement=False),
    Column("requeued_at", Float, nullable=False),
    Column("running_at", Float),
    Column("step_at", Float),
)

# Notebooks, with the secret that their Jupyter accepts (`sealed`); only the server and the job know it.
notebooks = Table(
    "notebooks",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("cluster", String(64), nullable=False, index=True),
    Column("job_id", Integer, nullable=False),
    Column("person", String(64), nullable=False),
    Column("user", String(64), nullable=False),
    Column("folder", Text, nullable=False),
    Column("sealed", Text, nullable=False),
    Column("idle_s", Integer, nullable=False),
    Column("at", Float, nullable=False),
)

# Image tags, by cluster. `pinned`: the image for new machines; "" = the present image. `before`: what a roll back
# returns to.
node_images = Table(
    "node_images",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("pinned", String(200), nullable=False),
    Column("before", String(200), nullable=False),
)

# Versions of datasets. The row of a removed version is kept: a number is used only once, and lineage refers to it.
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

# Which version is in the lineage of which job.
job_datasets = Table(
    "job_datasets",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
)

# Versions of software environments. The row of a removed version is kept, as for datasets.
environments = Table(
    "environments",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
    Column("python", String(32), nullable=False),
    Column("packages", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("source", String(200), nullable=False),
    Column("request", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("lock", Text, nullable=False),  # every package with its hashes, as uv wrote it
    Column("removed_at", Float),
    Column("removed_by", String(64), nullable=False),
    Column("forced", Boolean, nullable=False),
)

# Which version is in the lineage of which job.
job_environments = Table(
    "job_environments",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
)

# The latest throughput measurement of each volume.
volume_speeds = Table(
    "volume_speeds",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("path", String(500), primary_key=True),
    Column("node", String(64), nullable=False),  # the node that measured it
    Column("mib", Integer, nullable=False),  # amount written
    Column("at", Float, nullable=False),
    Column("write_mib_s", Float, nullable=False),
    Column("read_mib_s", Float, nullable=False),
    Column("checkpoint_mib_s", Float, nullable=False),
    Column("error", Text, nullable=False),
)

# The results of fabric tests, as schemas.nodes.fabric_tests.FabricTestOut, and of what-ifs, as schemas.whatif.WhatIfOut.
operation_results = Table(
    "operation_results",
    metadata,
    Column("operation", String(32), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("cluster", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("result", JSON, nullable=False),
    Index("ix_operation_results_cluster_kind_at", "cluster", "kind", "at"),
)

# Responses to requests with an idempotency key. A response can only be read with the token of the client that made the
# request.
answers = Table(
    "answers",
    metadata,
    Column("id", String(64), primary_key=True),  # derived from the client's token and its key
    Column("request", String(64), nullable=False),
    Column("at", Float, nullable=False, index=True),
    Column("status", Integer, nullable=False),  # 0: in progress
    Column("answer", Text, nullable=False),
    # Number of the server that handles the request (store/db/server_locks.py).
    Column("server", Integer, nullable=False, server_default="0"),
)
