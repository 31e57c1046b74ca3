"""The tags that Headway gives each MLflow run of a job: where the run comes from."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.services.app_state import AppState
from headway.services.jobs.find_job import find_record

TAGS = "headway."  # the first part of the names of tags that only Headway sets
JOB_TAG = f"{TAGS}job"  # the job that created the run


async def run_tags(state: AppState, cluster: Cluster, job: JobState) -> dict[str, str]:
    """Returns the tags of a job's runs by name, without empty ones."""
    record = await find_record(state, cluster, job)
    facts = record.facts if record is not None else {}
    git = (record.request.get("git") or {}) if record is not None else {}
    versions = {
        kind: ", ".join(f"{row['name']}@{row['version']}" for row in facts.get(kind, []))
        for kind in ("datasets", "environments")
    }
    tags = dict(
        job=job.label,
        cluster=cluster.name,
        team=job.account,
        user=job.user,
        job_name=job.name,
        lineage=f"{state.settings.url}/clusters/{cluster.name}/jobs/{job.id}" if record is not None else "",
        commit=git.get("commit", ""),
        container=facts.get("container_image", ""),
        pipeline=record.pipeline if record is not None else "",
        step=record.step if record is not None else "",
        **versions,
    )
    return {f"{TAGS}{name}": str(value) for name, value in tags.items() if value}
