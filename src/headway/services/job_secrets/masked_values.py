"""The values that logs of a job must not show: all secrets that the job could ask for."""

from __future__ import annotations

from headway.domain.access.job_secret import OwnerKind, SecretOwner
from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.logs.masking import LogMask
from headway.services.app_state import AppState


async def log_mask(state: AppState, cluster: Cluster, job: JobState) -> LogMask:
    """Returns the mask for the logs of a job: the secrets of its user and its team, whether it asked for them or not (a
    script names them itself), also values that were replaced or removed in the last 90 days."""
    owners = [SecretOwner(OwnerKind.USER, job.user), SecretOwner(OwnerKind.TEAM, job.account)]
    rows = await state.store.job_secrets.values_to_mask(cluster.name, *owners)
    return LogMask(map(state.store.job_secrets.value_of, rows))
