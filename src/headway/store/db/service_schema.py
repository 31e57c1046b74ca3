"""Tables of services: their replicas, keys, events and figures. Columns are as in `store.db.metadata`."""

from __future__ import annotations

from sqlalchemy import JSON, Boolean, Column, Float, Index, Integer, String, Table, Text

from headway.store.db.metadata import metadata

services = Table(
    "services",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("cluster", String(64), nullable=False),
    Column("team", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("user", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("document", JSON, nullable=False),
    Column("version", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("why", Text, nullable=False),
    Column("least", Integer, nullable=False),
    Column("most", Integer, nullable=False),
    Column("wanted", Integer, nullable=False),
    Column("low_since", Float),
    Column("ended_at", Float),
    Index("ix_services_cluster_ended_at", "cluster", "ended_at"),
)

service_replicas = Table(
    "service_replicas",
    metadata,
    Column("service", String(32), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("cluster", String(64), nullable=False),
    Column("version", Integer, nullable=False),
    Column("port", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("since", Float, nullable=False),
    Column("state", String(16), nullable=False),
    Column("job_id", Integer, nullable=False),
    Column("node", String(64), nullable=False),
    Column("why", Text, nullable=False),
    Column("failed", Boolean, nullable=False),
    Column("healthy_at", Float),
    Column("ended_at", Float),
    Index("ix_service_replicas_cluster", "cluster"),
)

service_keys = Table(
    "service_keys",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("cluster", String(64), nullable=False),
    Column("service", String(160), nullable=False),
    Column("label", String(200), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("revoked_at", Float),
    Column("per_minute", Integer),
    Index("ix_service_keys_cluster", "cluster"),
)

service_events = Table(
    "service_events",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("cluster", String(64), nullable=False),
    Column("service", String(32), nullable=False),
    Column("at", Float, nullable=False),
    Column("text", Text, nullable=False),
    Index("ix_service_events_service", "service", "number"),
)

# What was counted in a minute: minutes since 1970, figures as domain.serving.service_figures has them.
service_minutes = Table(
    "service_minutes",
    metadata,
    Column("service", String(32), primary_key=True),
    Column("minute", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("cluster", String(64), nullable=False),
    Column("figures", JSON, nullable=False),
)

# What was last read of a cluster's services, so that each request and token is counted once.
service_readings = Table(
    "service_readings",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("after", String(64), nullable=False),
    Column("counters", JSON, nullable=False),
)

SERVICE_TABLES = (services, service_replicas, service_keys, service_events, service_minutes, service_readings)
