"""Tables of the billing ledger: usage of runs, cost of machines, notifications sent. Times are unix seconds."""

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
    TypeDecorator,
    text,
)

from headway.store.db.metadata import metadata


class GpuCount(TypeDecorator[float]):
    """Number of GPUs, a fraction where jobs hold parts of GPUs. Whole numbers are read as int."""

    impl = Float
    cache_ok = True

    def process_result_value(self, value: float | None, dialect: object) -> float | None:  # noqa: ARG002
        """Returns the stored number."""
        return int(value) if value is not None and value == int(value) else value


# Sums over runs: USED are those of a usage report, in its order; UNITS are unit-seconds (allocated, lost, idle), by which
# costs are shared.
USED = (
    "runs", "gpu_s", "cpu_s", "lost_gpu_s", "idle_gpu_s", "waited_s", "waited_gpu_s", "energy_j", "unmeasured_gpu_s",
    "unmeasured_cpu_s",
)  # fmt: skip
UNITS = ("unit_s", "lost_unit_s", "idle_unit_s")

# Prices of a node in each group over time: one row per change.
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

# Kinds of runs: all combinations of these columns. A report reads the runs of one kind at a time, so each sum comes
# from an index in its order and nothing has to be sorted.
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
    Column("per_node", Integer, nullable=False),  # units per node of the group: GPUs, or CPUs in a group without GPUs
    Index(
        "uq_run_kinds", "cluster", "team", "user", "partition", "gpu_type", "group", "per_node", unique=True
    ),
)  # fmt: skip

# Every run of every job as reported by accounting, with one row for each group whose nodes were allocated to it. The
# columns after `lost_s` are measured by Headway and never overwritten by accounting. The first index has all columns
# that reports need, so reports never read the table.
runs = Table(
    "runs",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("job", BigInteger, primary_key=True, autoincrement=False),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("group", String(64), primary_key=True),
    Column("kind", Integer, ForeignKey("run_kinds.id"), nullable=False),
    Column("first", Integer, nullable=False),  # 1 in one row of each run, for values that are counted once
    Column("end", BigInteger, nullable=False),  # 0: still running
    Column("submit", BigInteger, nullable=False),
    Column("eligible", BigInteger, nullable=False),
    Column("qos", String(64), nullable=False),
    Column("state", String(32), nullable=False),
    Column("nodes", Text, nullable=False),
    Column("node_count", Integer, nullable=False),
    Column("gpus", GpuCount, nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("units", Integer, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("time_limit_s", BigInteger),
    Column("used_cpu_s", BigInteger, nullable=False),
    Column("used_memory_mib", BigInteger, nullable=False),
    Column("array_job", BigInteger, nullable=False),
    Column("lost_s", BigInteger, nullable=False),  # at the end of the run; a later run repeats this work
    Column("measured_s", BigInteger, nullable=False, server_default="0"),
    Column("idle_s", BigInteger, nullable=False, server_default="0"),
    Column("energy_j", BigInteger, nullable=False, server_default="0"),
    # CPU-seconds during which the nodes' power counters were read
    Column("cpu_measured_s", BigInteger, nullable=False, server_default="0"),
    Column("saved_at", Float),  # when the checkpoint was written from which the next run continued
    Index(
        "ix_runs_report", "kind", "start", "end", "units", "gpus", "cpus", "first", "eligible", "lost_s", "idle_s",
        "measured_s", "energy_j", "cpu_measured_s",
    ),
    Index("ix_runs_ended", "kind", "end", "start", "gpus"),
    Index("ix_runs_started", "cluster", "start"),
    Index("ix_runs_open", "cluster", "start", sqlite_where=text('"end" = 0'), postgresql_where=text('"end" = 0')),
    Index(
        "ix_runs_lost", "kind", "start", "end", "state", "lost_s", "units", "gpus", "job", "nodes",
        sqlite_where=text("lost_s > 0"), postgresql_where=text("lost_s > 0"),
    ),
)  # fmt: skip

# Which runs were on which node, to find what was still allocated on a broken node.
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

# UTC days whose sums (`what`: see store.billing.daily_rollups) in the three tables below are valid. Reports read these
# instead of up to a million runs. A write that changes the data they are computed from deletes the row.
summed_days = Table(
    "summed_days",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("what", String(8), primary_key=True),
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    # Latest end of the day's runs (0: not needed); -1 while the sums are being computed.
    Column("last_end", BigInteger, nullable=False),
)

# The runs of a kind that began in a day and have ended: the same sums as over single runs (store.billing.run_sums).
run_days = Table(
    "run_days",
    metadata,
    Column("kind", Integer, ForeignKey("run_kinds.id"), primary_key=True, autoincrement=False),
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False) for name in (*USED, *UNITS, "last_end")),
)

# GPU-seconds that were allocated to runs in each half hour of a day, by GPU type and group.
allocated_gpu_days = Table(
    "allocated_gpu_days",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    Column("gpu_type", String(64), primary_key=True),
    Column("group", String(64), primary_key=True),
    Column("seconds", JSON, nullable=False),
)

# Seconds of each half hour of a day in which a node was at least partly allocated.
touched_days = Table(
    "touched_days",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    Column("node", String(64), primary_key=True),
    Column("seconds", JSON, nullable=False),
)

# Lifetimes of machines (ended = 0: still exists), and when each machine was last seen.
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

# Times in which instances of clouds ran (ended_at = 0: it runs), and when each was last listed.
rentals = Table(
    "rentals",
    metadata,
    Column("instance", String(64), primary_key=True),
    Column("launched_at", BigInteger, primary_key=True, autoincrement=False),
    Column("cloud", String(32), nullable=False),
    Column("cluster", String(64), nullable=False, index=True),
    Column("machine", String(64), nullable=False),
    Column("instance_type", String(64), nullable=False),
    Column("zone", String(64), nullable=False),
    Column("purchase", String(16), nullable=False),
    Column("usd_per_hour", String(32), nullable=True),
    Column("ended_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
    Column("taken_back", Boolean, nullable=False),
)

# Prices that clouds asked, each from `since` on, and when each was last seen.
seen_prices = Table(
    "seen_prices",
    metadata,
    Column("cloud", String(32), primary_key=True),
    Column("instance_type", String(64), primary_key=True),
    Column("zone", String(64), primary_key=True),
    Column("purchase", String(16), primary_key=True),
    Column("since", BigInteger, primary_key=True, autoincrement=False),
    Column("usd_per_hour", String(32), nullable=False),
    Column("seen_at", BigInteger, nullable=False),
)

# Time spans in which a node was down, drained or a spare.
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

# How far the collection of a cluster's usage data has come.
ledger_marks = Table(
    "ledger_marks",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("collected_to", BigInteger, nullable=False),
    Column("measured_to", BigInteger, nullable=False),
    Column("swept_at", BigInteger, nullable=False),  # when late records were last looked for
    Column(
        "longest_s", BigInteger, nullable=False
    ),  # the longest run: a search for runs at some time has to start this many seconds earlier
    Column("error", Text, nullable=False),  # why the last read of accounting failed
)

# Closed invoices with their chargeback; never changed.
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

# The budget level that each team was notified of, and whether its jobs are held until the next period.
budget_notes = Table(
    "budget_notes",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("team", String(64), primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),  # of the period
    Column("level", String(16), nullable=False),
    Column("capped", Boolean, nullable=False),
)

# Checkpoint totals reported by training jobs, per job.
job_saves = Table(
    "job_saves",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("job", BigInteger, primary_key=True, autoincrement=False),
    Column("saves", Integer, nullable=False),
    Column("stalled_s", Float, nullable=False),
    Column("up_s", Float, nullable=False),
    Column("at", BigInteger, nullable=False),  # time of the last report
)

# Notifications that are sent once through the alert channels of a cluster: first stored here, then sent.
notifications = Table(
    "notifications",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("title", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("told_at", BigInteger, nullable=False),  # 0: not sent yet
)
