"""The newest migration, and the metadata that all tables share. Times are unix seconds; documents and errors are JSON. A column
with a secret value has the value encrypted with a key that is not in the database (store.db.sealing), and is named `sealed`."""

from __future__ import annotations

from sqlalchemy import MetaData

HEAD = "0001"  # the newest migration; a test compares it with Alembic's own answer

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
