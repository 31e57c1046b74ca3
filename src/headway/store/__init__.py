"""The store: all persistent data of the server in SQL, SQLite by default or PostgreSQL. SQL is used in this package
alone.

Not here: rules about the data (its callers), values that only one process needs (`services.read_model`)."""

from headway.store.access.audit import AuditAsk
from headway.store.clusters.operations import OperationAsk
from headway.store.db.errors import DatabaseLocked, StoreUnavailable
from headway.store.db.rows import (
    ActivityPlace,
    ActivityRow,
    AuditRow,
    BatchRow,
    ClusterRow,
    DueUserChange,
    GroupsReading,
    InvoiceRow,
    JobRecord,
    JobSecretRow,
    NotebookRow,
    OidcFlow,
    Operation,
    OperationEvent,
    Person,
    PipelineRow,
    ProvisionedGroup,
    ProvisionedUser,
    SignIn,
    SweepRow,
    Token,
    TokenHolder,
    TrialRow,
    VolumeSpeedRow,
)
from headway.store.db.service_rows import ReplicaRow, ServiceEventRow, ServiceKeyRow, ServiceRow
from headway.store.jobs.sweeps import SWEEP_ID
from headway.store.store import Store, open_store

__all__ = [
    "SWEEP_ID",
    "ActivityPlace",
    "ActivityRow",
    "AuditAsk",
    "AuditRow",
    "BatchRow",
    "ClusterRow",
    "DatabaseLocked",
    "DueUserChange",
    "GroupsReading",
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
    "ProvisionedGroup",
    "ProvisionedUser",
    "ReplicaRow",
    "ServiceEventRow",
    "ServiceKeyRow",
    "ServiceRow",
    "SignIn",
    "Store",
    "StoreUnavailable",
    "SweepRow",
    "Token",
    "TokenHolder",
    "TrialRow",
    "VolumeSpeedRow",
    "open_store",
]
