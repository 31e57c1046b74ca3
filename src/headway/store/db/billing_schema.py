"""Tables of the billing ledger: usage of runs, cost of machines, notifications sent. Times are unix seconds."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, String, Table, Text, text

from headway.store.db.schema import metadata

# Sums over runs: those of a usage report, in its order, and seconds of units (held, lost, idle), by which costs are shared.
USED = (
    "runs", "gpu_s", "cpu_s", "lost_gpu_s", "idle_gpu_s", "waited_s", "waited_gpu_s", "energy_j", "unmeasured_gpu_s",
    "unmeasured_cpu_s",
)  # fmt: skip
UNITS = ("unit_s", "lost_unit_s", "idle_unit_s")

# Prices of a node in each group, over time: a row when one changes.
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
    Column("cpu_measured_s", BigInteger, nullable=False, server_default="0"),  # CPU-seconds while nodes' counters were read
    Column("saved_at", Float),  # when the state was written that the next run went on from
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

# Days of UTC whose sums (`what` of them: see store.billing.daily_rollups) are kept in the three tables below, and
# still hold: what a report reads
# of a million runs. A write that changes what they are made of takes the row away.
summed_days = Table(
    "summed_days",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("what", String(8), primary_key=True),
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    Column("last_end", BigInteger, nullable=False),  # of the runs in it (0: no matter); -1 while they are summed
)

# The runs of a kind that began in a day and have ended: the same sums as reports make of single runs (store.billing.run_sums).
run_days = Table(
    "run_days",
    metadata,
    Column("kind", Integer, ForeignKey("run_kinds.id"), primary_key=True, autoincrement=False),
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False) for name in (*USED, *UNITS, "last_end")),
)

# GPU-seconds that runs held in each half hour of a day, by the type and group of the GPUs.
held_days = Table(
    "held_days",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    Column("gpu_type", String(64), primary_key=True),
    Column("group", String(64), primary_key=True),
    Column("seconds", JSON, nullable=False),
)

# Seconds of each half hour of a day in which a node was not wholly free.
touched_days = Table(
    "touched_days",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    Column("node", String(64), primary_key=True),
    Column("seconds", JSON, nullable=False),
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
