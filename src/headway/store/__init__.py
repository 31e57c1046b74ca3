"""The store: all persistent data of the server in SQL, SQLite by default or PostgreSQL. SQL is used in this package
alone; rules are in its callers."""

from headway.store.access.audit import AuditAsk
from headway.store.clusters.operations import OperationAsk
from headway.store.db.rows import (
    ActivityPlace,
    ActivityRow,
    AuditRow,
    ClusterRow,
    InvoiceRow,
    JobRecord,
    JobSecretRow,
    NotebookRow,
    OidcFlow,
    Operation,
    OperationEvent,
    Person,
    PipelineRow,
    SignIn,
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
    "JobSecretRow",
    "NotebookRow",
    "OidcFlow",
    "Operation",
    "OperationAsk",
    "OperationEvent",
    "Person",
    "PipelineRow",
    "SignIn",
    "Store",
    "StoreUnavailable",
    "Token",
    "VolumeSpeedRow",
    "open_store",
]
