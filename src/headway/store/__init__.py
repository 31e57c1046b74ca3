"""SQL: SQLite by default, PostgreSQL by URL."""

from headway.store.records import ClusterRow, Event, JobRecord, Operation, Person, PipelineRow, Token
from headway.store.store import Store, open_store

__all__ = ["ClusterRow", "Event", "JobRecord", "Operation", "Person", "PipelineRow", "Store", "Token", "open_store"]
