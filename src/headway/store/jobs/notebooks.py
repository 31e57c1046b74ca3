"""Notebooks: the job of each, its owner, and its Jupyter token."""

from __future__ import annotations

from sqlalchemy import delete, insert, select, update

from headway.errors import NotFound
from headway.store.db import schema as t
from headway.store.db.rows import NotebookRow
from headway.store.db.transactions import StorePart


class Notebooks(StorePart):
    """Stores notebooks."""

    async def save(self, row: NotebookRow) -> NotebookRow:
        """Stores a notebook before its job is submitted. Returns the stored row, or the existing one with the
        same id."""
        n = t.notebooks
        async with self._database.write() as db:
            known = (await db.execute(select(n).where(n.c.id == row.id))).first()
            if known is not None:
                return NotebookRow(**known._mapping)
            await db.execute(insert(n).values({name: getattr(row, name) for name in row.__dataclass_fields__}))
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
        return NotebookRow(**row._mapping)

    async def of_cluster(self, cluster: str) -> tuple[NotebookRow, ...]:
        """Returns the notebooks of a cluster, the latest first."""
        n = t.notebooks
        async with self._database.read() as db:
            rows = await db.execute(select(n).where(n.c.cluster == cluster).order_by(n.c.at.desc()))
            return tuple(NotebookRow(**row._mapping) for row in rows)

    async def delete(self, notebook_id: str) -> None:
        """Deletes a notebook, if there is one."""
        async with self._database.write() as db:
            await db.execute(delete(t.notebooks).where(t.notebooks.c.id == notebook_id))
