"""SQL: SQLite by default, PostgreSQL by URL."""

from headway.store.records import ClusterRow, Event, Operation, Person, Token
from headway.store.store import Store, open_store

__all__ = ["ClusterRow", "Event", "Operation", "Person", "Store", "Token", "open_store"]
