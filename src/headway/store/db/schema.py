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

HEAD = "0001"  # the newest migration; a test holds it against Alembic's own answer

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
    Column("key", String(64), index=True, unique=True),  # of the request that asked for it, where that had one
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

# Tags, by cluster. `pinned`: what new machines are made from; "" = the present image. `before`: what a roll goes back to.
node_images = Table(
    "node_images",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("pinned", String(200), nullable=False),
    Column("before", String(200), nullable=False),
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

# What was answered to requests that are not to be done twice. The answer can be read with the asker's own token alone.
# The latest measurement of each.
volume_speeds = Table(
    "volume_speeds",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("path", String(500), primary_key=True),
    Column("node", String(64), nullable=False),  # it was measured from
    Column("mib", Integer, nullable=False),  # written
    Column("at", Float, nullable=False),
    Column("write_mib_s", Float, nullable=False),
    Column("read_mib_s", Float, nullable=False),
    Column("checkpoint_mib_s", Float, nullable=False),
    Column("error", Text, nullable=False),
)

answers = Table(
    "answers",
    metadata,
    Column("id", String(64), primary_key=True),  # of the asker's token and their key
    Column("request", String(64), nullable=False),
    Column("at", Float, nullable=False, index=True),
    Column("status", Integer, nullable=False),  # 0: being done
    Column("answer", Text, nullable=False),
    Column("server", Integer, nullable=False, server_default="0"),  # whose request it is (store/db/advisory_locks.py)
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
