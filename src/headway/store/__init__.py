"""SQL: SQLite by default, PostgreSQL by URL."""

from headway.store.access.audit import AuditAsk
from headway.store.clusters.operations import OperationAsk
from headway.store.db.rows import (
    AuditRow,
    ClusterRow,
    Event,
    HappeningPlace,
    HappeningRow,
    InvoiceRow,
    JobRecord,
    NotebookRow,
    Operation,
    Person,
    PipelineRow,
    PriceRow,
    SpeedRow,
    Token,
)
from headway.store.db.transactions import Locked, StoreAway
from headway.store.store import Store, open_store

__all__ = [
    "AuditAsk",
    "AuditRow",
    "ClusterRow",
    "Event",
    "HappeningPlace",
    "HappeningRow",
    "InvoiceRow",
    "JobRecord",
    "Locked",
    "NotebookRow",
    "Operation",
    "OperationAsk",
    "Person",
    "PipelineRow",
    "PriceRow",
    "SpeedRow",
    "Store",
    "StoreAway",
    "Token",
    "open_store",
]
