"""The store: persistent data in SQL. SQLite by default, PostgreSQL if a URL is given."""

from headway.store.access.audit import AuditAsk
from headway.store.clusters.operations import OperationAsk
from headway.store.db.rows import (
    ActivityRow,
    AuditRow,
    ClusterRow,
    HappeningPlace,
    InvoiceRow,
    JobRecord,
    NotebookRow,
    Operation,
    OperationEvent,
    Person,
    PipelineRow,
    PriceRow,
    Token,
    VolumeSpeedRow,
)
from headway.store.db.transactions import DatabaseLocked, StoreUnavailable
from headway.store.store import Store, open_store

__all__ = [
    "ActivityRow",
    "AuditAsk",
    "AuditRow",
    "ClusterRow",
    "DatabaseLocked",
    "HappeningPlace",
    "InvoiceRow",
    "JobRecord",
    "NotebookRow",
    "Operation",
    "OperationAsk",
    "OperationEvent",
    "Person",
    "PipelineRow",
    "PriceRow",
    "Store",
    "StoreUnavailable",
    "Token",
    "VolumeSpeedRow",
    "open_store",
]
