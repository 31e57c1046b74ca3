"""Clusters: the document last applied, its summary, its state and its owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, insert, select, update

from headway.store.db import access_schema as access
from headway.store.db import billing_schema as ledger
from headway.store.db import cluster_schema as t
from headway.store.db import model_schema as models
from headway.store.db.rows import ClusterRow
from headway.store.db.service_schema import SERVICE_TABLES
from headway.store.db.transactions import StorePart


class ClusterStore(StorePart):
    """Stores one row per cluster."""

    async def save(
        self,
        name: str,
        document: Mapping[str, Any] | None = None,
        *,
        summary: Mapping[str, Any] | None = None,
        state: str | None = None,
        owner: str = "",
    ) -> None:
        """Creates the cluster's row, or changes the given fields. Creating a row requires a document. A new document
        ends the drift that was found."""
        given: dict[str, Any] = {}
        if document is not None:
            given |= {"document": dict(document), "drift": None}
        if summary is not None:
            given["summary"] = dict(summary)
        if state is not None:
            given["state"] = state
        if owner:
            given["owner"] = owner
        if not given:
            return
        async with self._database.write() as db:
            changed = await db.execute(update(t.clusters).where(t.clusters.c.name == name).values(**given))
            if changed.rowcount or document is None:
                return
            defaults = {"summary": {}, "state": "creating", "owner": "", "created_at": self._database.now()}
            await db.execute(insert(t.clusters).values(**{**defaults, **given, "name": name}))

    async def save_drift(self, name: str, drift: Mapping[str, Any]) -> None:
        """Saves the report of a comparison of the cluster with its file."""
        async with self._database.write() as db:
            await db.execute(update(t.clusters).where(t.clusters.c.name == name).values(drift=dict(drift)))

    async def get(self, name: str) -> ClusterRow | None:
        """Returns the cluster of this name, or None."""
        async with self._database.read() as db:
            row = (await db.execute(select(t.clusters).where(t.clusters.c.name == name))).first()
        return ClusterRow(**row._mapping) if row else None

    async def all(self) -> tuple[ClusterRow, ...]:
        """Returns all clusters, sorted by name."""
        async with self._database.read() as db:
            rows = await db.execute(select(t.clusters).order_by(t.clusters.c.name))
            return tuple(ClusterRow(**row._mapping) for row in rows)

    async def delete(self, name: str, *, delete_data: bool = False) -> None:
        """Removes the row. Secrets are kept for a later cluster of this name that uses the kept data, unless
        `delete_data` is set. Uids are always kept."""
        async with self._database.write() as db:
            await db.execute(delete(t.clusters).where(t.clusters.c.name == name))
            await db.execute(delete(t.notebooks).where(t.notebooks.c.cluster == name))
            await db.execute(delete(t.node_images).where(t.node_images.c.cluster == name))
            if delete_data:
                await db.execute(delete(t.secrets).where(t.secrets.c.cluster == name))
                await db.execute(delete(access.job_secrets).where(access.job_secrets.c.cluster == name))
                await db.execute(delete(access.former_job_secrets).where(access.former_job_secrets.c.cluster == name))
                await db.execute(
                    delete(access.job_secret_deliveries).where(access.job_secret_deliveries.c.cluster == name)
                )
                await db.execute(
                    delete(access.job_secret_revisions).where(access.job_secret_revisions.c.cluster == name)
                )
                await db.execute(delete(t.cluster_users).where(t.cluster_users.c.cluster == name))
                await db.execute(delete(t.volume_speeds).where(t.volume_speeds.c.cluster == name))
                await db.execute(delete(t.operation_results).where(t.operation_results.c.cluster == name))
                await db.execute(delete(t.refills).where(t.refills.c.cluster == name))
                await db.execute(delete(ledger.budget_notes).where(ledger.budget_notes.c.cluster == name))
                # A new cluster of this name numbers its jobs from 1 again.
                await db.execute(delete(ledger.job_saves).where(ledger.job_saves.c.cluster == name))
                await db.execute(delete(t.jobs).where(t.jobs.c.cluster == name))
                await db.execute(delete(t.datasets).where(t.datasets.c.cluster == name))
                await db.execute(delete(t.job_datasets).where(t.job_datasets.c.cluster == name))
                await db.execute(delete(t.environments).where(t.environments.c.cluster == name))
                await db.execute(delete(t.job_environments).where(t.job_environments.c.cluster == name))
                await db.execute(delete(t.pipelines).where(t.pipelines.c.cluster == name))
                await db.execute(delete(t.trials).where(t.trials.c.cluster == name))
                await db.execute(delete(t.sweeps).where(t.sweeps.c.cluster == name))
                for table in SERVICE_TABLES:
                    await db.execute(delete(table).where(table.c.cluster == name))
                await db.execute(delete(t.batches).where(t.batches.c.cluster == name))
                await db.execute(delete(models.promotions).where(models.promotions.c.cluster == name))
                await db.execute(delete(models.model_approvals).where(models.model_approvals.c.cluster == name))
                await db.execute(delete(models.required_gates).where(models.required_gates.c.cluster == name))
                await db.execute(delete(models.pipeline_schedules).where(models.pipeline_schedules.c.cluster == name))
                await db.execute(delete(t.trainings).where(t.trainings.c.cluster == name))
                await db.execute(delete(t.training_tags).where(t.training_tags.c.cluster == name))
                await db.execute(delete(t.symptoms).where(t.symptoms.c.cluster == name))
                await db.execute(delete(t.incidents).where(t.incidents.c.cluster == name))
