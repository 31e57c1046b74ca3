"""The Store: everything the server remembers, in parts by subject."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine

from headway.store.billing.budgets import Budgets
from headway.store.billing.capacity import CapacityReports
from headway.store.billing.checkpoints import Checkpoints
from headway.store.billing.daily_rollups import DailyRollups
from headway.store.billing.invoices import Invoices
from headway.store.billing.ledger_progress import LedgerProgress
from headway.store.billing.losses import LossReports
from headway.store.billing.machine_lives import MachineLives
from headway.store.billing.node_spans import NodeSpans
from headway.store.billing.notifications import Notifications
from headway.store.billing.prices import Prices
from headway.store.billing.run_sums import RunSums
from headway.store.billing.runs import Runs
from headway.store.billing.usage import UsageReports
from headway.store.core.activity import ActivityLog
from headway.store.core.audit import AuditTrail
from headway.store.core.cap_refills import CapRefills
from headway.store.core.cluster_records import ClusterRecords
from headway.store.core.clusters import Clusters
from headway.store.core.credential_cache import CredentialCache
from headway.store.core.datasets import Datasets
from headway.store.core.idempotency_keys import IdempotencyKeys
from headway.store.core.incidents import Incidents
from headway.store.core.jobs import JobRecords
from headway.store.core.linux_users import LinuxUsers
from headway.store.core.node_images import NodeImages
from headway.store.core.notebooks import Notebooks
from headway.store.core.operations import Operations
from headway.store.core.people import People
from headway.store.core.pipelines import Pipelines
from headway.store.core.secrets import Secrets
from headway.store.core.sessions import Sessions
from headway.store.core.signals import Signals
from headway.store.core.tokens import Tokens
from headway.store.core.volume_speeds import VolumeSpeeds
from headway.store.db.engine import database_url, open_engine
from headway.store.db.transactions import Database


class Store:
    """One attribute a subject, all on the same database. Open it with `open_store`; `close` it at the end."""

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.time) -> None:
        database = Database(engine, clock)
        credentials = CredentialCache(database)
        self.database = database
        self.presence = database.presence
        # People and what they do
        self.people = People(database, credentials)
        self.tokens = Tokens(database, credentials)
        self.sessions = Sessions(database, credentials)
        self.audit = AuditTrail(database)
        self.activity = ActivityLog(database)
        self.idempotency_keys = IdempotencyKeys(database)
        # Clusters
        self.clusters = Clusters(database)
        self.secrets = Secrets(database)
        self.linux_users = LinuxUsers(database)
        self.cap_refills = CapRefills(database)
        self.node_images = NodeImages(database)
        self.volume_speeds = VolumeSpeeds(database)
        self.datasets = Datasets(database)
        self.operations = Operations(database)
        self.signals = Signals(database)
        self.incidents = Incidents(database)
        self.cluster_records = ClusterRecords(database, self.secrets)
        # Jobs
        self.jobs = JobRecords(database)
        self.pipelines = Pipelines(database)
        self.notebooks = Notebooks(database)
        # Billing: what was collected
        self.prices = Prices(database)
        self.rollups = DailyRollups(database)
        self.ledger_progress = LedgerProgress(database)
        self.runs = Runs(database, self.rollups, self.ledger_progress)
        self.checkpoints = Checkpoints(database)
        self.machine_lives = MachineLives(database)
        self.node_spans = NodeSpans(database)
        # Billing: reports, and what follows from them
        self.run_sums = RunSums(database, self.rollups, self.ledger_progress)
        self.usage = UsageReports(database, self.run_sums)
        self.capacity = CapacityReports(database, self.rollups, self.ledger_progress, self.run_sums)
        self.losses = LossReports(database, self.run_sums)
        self.invoices = Invoices(database)
        self.budgets = Budgets(database)
        self.notifications = Notifications(database)

    async def close(self) -> None:
        await self.database.close()


async def open_store(state_dir: Path, url: str = "", *, clock: Callable[[], float] = time.time) -> Store:
    """The store of a state folder (SQLite), or of a PostgreSQL URL, at the newest migration."""
    return Store(await open_engine(database_url(state_dir, url)), clock)
