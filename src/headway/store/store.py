"""The Store: all persistent data of the server, in one part per subject."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine

from headway.store.access.audit import AuditTrail
from headway.store.access.credential_cache import CredentialCache
from headway.store.access.idempotency_keys import IdempotencyKeys
from headway.store.access.linux_users import LinuxUsers
from headway.store.access.people import People
from headway.store.access.sessions import Sessions
from headway.store.access.tokens import Tokens
from headway.store.billing.budgets import Budgets
from headway.store.billing.capacity import CapacityReports
from headway.store.billing.checkpoints import Checkpoints
from headway.store.billing.daily_rollups import DailyRollups
from headway.store.billing.invoices import Invoices
from headway.store.billing.ledger_progress import LedgerProgress
from headway.store.billing.losses import LossReports
from headway.store.billing.machine_lifetimes import MachineLifetimes
from headway.store.billing.node_spans import NodeSpans
from headway.store.billing.notifications import Notifications
from headway.store.billing.prices import Prices
from headway.store.billing.run_sums import RunSums
from headway.store.billing.runs import Runs
from headway.store.billing.usage import UsageReports
from headway.store.clusters.activity import ActivityLog
from headway.store.clusters.cluster_records import ClusterRecords
from headway.store.clusters.clusters import Clusters
from headway.store.clusters.datasets import Datasets
from headway.store.clusters.environments import Environments
from headway.store.clusters.fabric_tests import FabricTests
from headway.store.clusters.gpu_hour_cap_resets import GpuHourCapResets
from headway.store.clusters.incidents import Incidents
from headway.store.clusters.job_secrets import JobSecrets
from headway.store.clusters.node_images import NodeImages
from headway.store.clusters.operations import Operations
from headway.store.clusters.secrets import Secrets
from headway.store.clusters.symptoms import Symptoms
from headway.store.clusters.volume_speeds import VolumeSpeeds
from headway.store.db.engine import database_url, open_engine
from headway.store.db.transactions import Database
from headway.store.jobs.job_records import JobRecords
from headway.store.jobs.notebooks import Notebooks
from headway.store.jobs.pipelines import Pipelines


class Store:
    """All parts of the store on one database, one attribute per subject. Open it with `open_store`, and `close` it at
    the end."""

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.time) -> None:
        database = Database(engine, clock)
        credentials = CredentialCache(database)
        self.database = database
        self.server_locks = database.server_locks
        # People and their actions
        self.people = People(database, credentials)
        self.tokens = Tokens(database, credentials)
        self.sessions = Sessions(database, credentials)
        self.audit = AuditTrail(database)
        self.activity = ActivityLog(database)
        self.idempotency_keys = IdempotencyKeys(database)
        # Clusters
        self.clusters = Clusters(database)
        self.secrets = Secrets(database)
        self.job_secrets = JobSecrets(database)
        self.linux_users = LinuxUsers(database)
        self.gpu_hour_cap_resets = GpuHourCapResets(database)
        self.node_images = NodeImages(database)
        self.volume_speeds = VolumeSpeeds(database)
        self.fabric_tests = FabricTests(database)
        self.datasets = Datasets(database)
        self.environments = Environments(database)
        self.operations = Operations(database)
        self.symptoms = Symptoms(database)
        self.incidents = Incidents(database)
        self.cluster_records = ClusterRecords(database, self.secrets)
        # Jobs
        self.jobs = JobRecords(database)
        self.pipelines = Pipelines(database)
        self.notebooks = Notebooks(database)
        # Billing: collected data
        self.prices = Prices(database)
        self.rollups = DailyRollups(database)
        self.ledger_progress = LedgerProgress(database)
        self.runs = Runs(database, self.rollups, self.ledger_progress)
        self.checkpoints = Checkpoints(database)
        self.machine_lifetimes = MachineLifetimes(database)
        self.node_spans = NodeSpans(database)
        # Billing: reports and their results
        self.run_sums = RunSums(database, self.rollups, self.ledger_progress)
        self.usage = UsageReports(database, self.run_sums)
        self.capacity = CapacityReports(database, self.rollups, self.ledger_progress, self.run_sums)
        self.losses = LossReports(database, self.run_sums)
        self.invoices = Invoices(database)
        self.budgets = Budgets(database)
        self.notifications = Notifications(database)

    async def close(self) -> None:
        """Closes the database connections."""
        await self.database.close()


async def open_store(state_dir: Path, url: str = "", *, clock: Callable[[], float] = time.time) -> Store:
    """Returns the store of a state folder (SQLite) or of a PostgreSQL URL, migrated to the newest version."""
    return Store(await open_engine(database_url(state_dir, url)), clock)
