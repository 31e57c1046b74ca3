"""The store: persistent data in SQL. SQLite by default, PostgreSQL if a URL is given."""

from headway.store.access.audit import AuditAsk
from headway.store.clusters.operations import OperationAsk
from headway.store.db.rows import (
    ActivityPlace,
    ActivityRow,
    AuditRow,
    ClusterRow,
    InvoiceRow,
    JobRecord,
    NotebookRow,
    Operation,
    OperationEvent,
    Person,
    PipelineRow,
    Token,
    VolumeSpeedRow,
)
from headway.store.db.transactions import DatabaseLocked, StoreUnavailable
from headway.store.store import Store, open_store

__all__ = [
    "ActivityPlace",
    "ActivityRow",
    "AuditAsk",
    "AuditRow",
    "ClusterRow",
    "DatabaseLocked",
    "InvoiceRow",
    "JobRecord",
    "NotebookRow",
    "Operation",
    "OperationAsk",
    "OperationEvent",
    "Person",
    "PipelineRow",
    "Store",
    "StoreUnavailable",
    "Token",
    "VolumeSpeedRow",
    "open_store",
]
