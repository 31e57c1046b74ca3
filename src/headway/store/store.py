"""The Store: all persistent data of the server, in one part per subject."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from headway.domain.operation_kinds import OperationKind
from headway.store.access.audit import AuditTrail
from headway.store.access.credential_cache import CredentialCache
from headway.store.access.idempotency_keys import IdempotencyKeyStore
from headway.store.access.linux_uids import LinuxUidStore
from headway.store.access.people import PersonStore
from headway.store.access.scim import ScimStore
from headway.store.access.sessions import SessionStore
from headway.store.access.tokens import TokenStore
from headway.store.access.user_changes import UserChangeStore
from headway.store.billing.budgets import BudgetStore
from headway.store.billing.capacity import CapacityReports
from headway.store.billing.checkpoints import CheckpointStore
from headway.store.billing.daily_rollups import DailyRollupStore
from headway.store.billing.demand import DemandReports
from headway.store.billing.invoices import InvoiceStore
from headway.store.billing.ledger_progress import LedgerProgress
from headway.store.billing.losses import LossReports
from headway.store.billing.machine_lifetimes import MachineLifetimeStore
from headway.store.billing.node_spans import NodeSpanStore
from headway.store.billing.notifications import NotificationStore
from headway.store.billing.prices import PriceStore
from headway.store.billing.rentals import RentalStore
from headway.store.billing.run_sums import RunSumStore
from headway.store.billing.runs import RunStore
from headway.store.billing.usage import UsageReports
from headway.store.clusters.activity import ActivityLog
from headway.store.clusters.cluster_records import ClusterRecords
from headway.store.clusters.clusters import ClusterStore
from headway.store.clusters.datasets import DatasetStore
from headway.store.clusters.environments import EnvironmentStore
from headway.store.clusters.gpu_hour_cap_resets import GpuHourCapResetStore
from headway.store.clusters.incidents import IncidentStore
from headway.store.clusters.job_secrets import JobSecretStore
from headway.store.clusters.node_images import NodeImageStore
from headway.store.clusters.operation_results import OperationResultStore
from headway.store.clusters.operations import OperationStore
from headway.store.clusters.secrets import ClusterSecretStore
from headway.store.clusters.symptoms import SymptomStore
from headway.store.clusters.volume_speeds import VolumeSpeedStore
from headway.store.db.engine import database_url, open_engine
from headway.store.db.sealing import SecretBox, open_box
from headway.store.db.server_values import ServerValueStore
from headway.store.db.transactions import Database
from headway.store.jobs.batches import BatchStore
from headway.store.jobs.job_records import JobRecordStore
from headway.store.jobs.notebooks import NotebookStore
from headway.store.jobs.pipeline_schedules import PipelineScheduleStore
from headway.store.jobs.pipelines import PipelineStore
from headway.store.jobs.promotions import PromotionStore
from headway.store.jobs.service_figures import ServiceFiguresStore
from headway.store.jobs.services import ServiceStore
from headway.store.jobs.sweeps import SweepStore
from headway.store.jobs.trainings import TrainingStore
from headway.store.key_rotation import KeyRotationStore


class Store:
    """All parts of the store on one database, one attribute per subject. Open it with `open_store`, and `close` it at
    the end."""

    def __init__(self, database: Database, box: SecretBox) -> None:
        credentials = CredentialCache(database)
        self.database = database
        self.server_locks = database.server_locks
        self.server_values = ServerValueStore(database)
        self.key_rotation = KeyRotationStore(database, box)
        # People and their actions
        self.people = PersonStore(database, credentials)
        self.tokens = TokenStore(database, credentials)
        self.sessions = SessionStore(database, credentials)
        self.scim = ScimStore(database)
        self.audit = AuditTrail(database)
        self.activity = ActivityLog(database)
        self.idempotency_keys = IdempotencyKeyStore(database)
        # Clusters
        self.clusters = ClusterStore(database)
        self.secrets = ClusterSecretStore(database, box)
        self.job_secrets = JobSecretStore(database, box)
        self.linux_uids = LinuxUidStore(database)
        self.user_changes = UserChangeStore(database)
        self.gpu_hour_cap_resets = GpuHourCapResetStore(database)
        self.node_images = NodeImageStore(database)
        self.volume_speeds = VolumeSpeedStore(database)
        self.fabric_tests = OperationResultStore(database, OperationKind.FABRIC_TEST, kept=20)
        self.whatifs = OperationResultStore(database, OperationKind.WHATIF, kept=10)
        self.datasets = DatasetStore(database)
        self.environments = EnvironmentStore(database)
        self.operations = OperationStore(database, self.secrets)
        self.symptoms = SymptomStore(database)
        self.incidents = IncidentStore(database)
        self.cluster_records = ClusterRecords(database, self.secrets)
        # Jobs
        self.jobs = JobRecordStore(database)
        self.pipelines = PipelineStore(database)
        self.pipeline_schedules = PipelineScheduleStore(database)
        self.sweeps = SweepStore(database)
        self.services = ServiceStore(database)
        self.service_figures = ServiceFiguresStore(database)
        self.batches = BatchStore(database)
        self.promotions = PromotionStore(database)
        self.trainings = TrainingStore(database)
        self.notebooks = NotebookStore(database, box)
        # Billing: collected data
        self.prices = PriceStore(database)
        self.rollups = DailyRollupStore(database)
        self.ledger_progress = LedgerProgress(database)
        self.runs = RunStore(database, self.rollups, self.ledger_progress)
        self.checkpoints = CheckpointStore(database)
        self.machine_lifetimes = MachineLifetimeStore(database)
        self.rentals = RentalStore(database)
        self.node_spans = NodeSpanStore(database)
        # Billing: reports and their results
        self.run_sums = RunSumStore(database, self.rollups, self.ledger_progress)
        self.usage = UsageReports(database, self.run_sums)
        self.capacity = CapacityReports(database, self.rollups, self.ledger_progress, self.run_sums)
        self.demand = DemandReports(database, self.run_sums)
        self.losses = LossReports(database, self.run_sums)
        self.invoices = InvoiceStore(database)
        self.budgets = BudgetStore(database)
        self.notifications = NotificationStore(database)

    async def close(self) -> None:
        """Closes the database connections."""
        await self.database.close()


async def open_store(
    state_dir: Path, url: str = "", *, data_dir: Path | None = None, clock: Callable[[], float] = time.time
) -> Store:
    """Returns the store of a state folder (SQLite) or of a PostgreSQL URL, migrated to the newest version. `data_dir`: the folder
    with the key of its secrets, if it is another one, which several servers share."""
    database = Database(await open_engine(database_url(state_dir, url)), clock)
    try:
        return Store(database, await open_box(database, data_dir or state_dir))
    except Exception:
        await database.close()
        raise
