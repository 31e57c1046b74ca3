"""Tables of models (promotions, approvals, required gates) and of scheduled pipelines. Columns are as in `store.db.metadata`."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Float, Index, Integer, String, Table, Text

from headway.store.db.metadata import metadata

promotions = Table(
    "promotions",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("cluster", String(64), nullable=False),
    Column("team", String(64), nullable=False),
    Column("model", String(256), nullable=False),
    Column("version", Integer, nullable=False),
    Column("alias", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("user", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("document", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("why", Text, nullable=False),
    Column("files", String(64), nullable=False),
    Column("jobs", JSON, nullable=False),
    Column("results", JSON, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("ended_at", Float),
    Index("ix_promotions_cluster_at", "cluster", "at"),
    Index("ix_promotions_ended_at", "ended_at"),
)

model_approvals = Table(
    "model_approvals",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("team", String(64), primary_key=True),
    Column("model", String(256), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("name", String(64), primary_key=True),
    Column("person", String(64), primary_key=True),
    Column("roles", JSON, nullable=False),
    Column("files", String(64), nullable=False),
    Column("note", Text, nullable=False),
    Column("at", Float, nullable=False),
)

required_gates = Table(
    "required_gates",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("team", String(64), primary_key=True),
    Column("alias", String(64), primary_key=True),
    Column("document", JSON, nullable=False),
    Column("person", String(64), nullable=False),
    Column("at", Float, nullable=False),
)

pipeline_schedules = Table(
    "pipeline_schedules",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("cluster", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("user", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("document", JSON, nullable=False),
    Column("next_at", Float),
    Column("dataset", String(64), nullable=False),
    Column("seen", Integer, nullable=False),
    Column("last", String(32), nullable=False),
    Column("why", Text, nullable=False),
    Index("ix_pipeline_schedules_cluster", "cluster"),
)
