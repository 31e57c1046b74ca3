"""Notebooks: the job of each, its owner, and its Jupyter token, encrypted."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import RowMapping, delete, insert, select, update

from headway.errors import NotFound
from headway.store.db import cluster_schema as t
from headway.store.db.rows import NotebookRow
from headway.store.db.sealing import SecretBox
from headway.store.db.transactions import Database, StorePart


class NotebookStore(StorePart):
    """Stores notebooks."""

    def __init__(self, database: Database, box: SecretBox) -> None:
        super().__init__(database)
        self._box = box

    async def save(self, row: NotebookRow) -> NotebookRow:
        """Stores a notebook before its job is submitted. Returns the stored row, or the existing one with the
        same id."""
        n = t.notebooks
        async with self._database.write() as db:
            known = (await db.execute(select(n).where(n.c.id == row.id))).first()
            if known is not None:
                return self._row(known._mapping)
            values = asdict(row)
            values["sealed"] = await self._box.seal(db, sealed_for(row.id), values.pop("secret"))
            await db.execute(insert(n).values(values))
        return row

    async def set_job(self, notebook_id: str, job_id: int, at: float) -> None:
        """Records the job of the notebook and when it was submitted."""
        n = t.notebooks
        async with self._database.write() as db:
            await db.execute(update(n).where(n.c.id == notebook_id).values(job_id=job_id, at=at))

    async def get(self, notebook_id: str) -> NotebookRow:
        """Returns a notebook. Raises NotFound if it does not exist."""
        n = t.notebooks
        async with self._database.read() as db:
            row = (await db.execute(select(n).where(n.c.id == notebook_id))).first()
        if row is None:
            raise NotFound("the notebook does not exist", hint="start one with headway notebook")
        return self._row(row._mapping)

    async def of_cluster(self, cluster: str) -> tuple[NotebookRow, ...]:
        """Returns the notebooks of a cluster, the latest first."""
        n = t.notebooks
        async with self._database.read() as db:
            rows = await db.execute(select(n).where(n.c.cluster == cluster).order_by(n.c.at.desc()))
            return tuple(self._row(row._mapping) for row in rows)

    async def delete(self, notebook_id: str) -> None:
        """Deletes a notebook, if there is one."""
        async with self._database.write() as db:
            await db.execute(delete(t.notebooks).where(t.notebooks.c.id == notebook_id))

    def _row(self, stored: RowMapping) -> NotebookRow:
        values = dict(stored)
        secret = self._box.open(sealed_for(values["id"]), values.pop("sealed"))
        return NotebookRow(**values, secret=secret)


def sealed_for(notebook_id: str) -> str:
    """Returns what the secret of a notebook is sealed for."""
    return f"secret of notebook {notebook_id}"
