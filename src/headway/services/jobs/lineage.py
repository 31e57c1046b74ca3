"""Lineage: the origin of a job, and the results that Slurm and its steps recorded."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headway.domain.access import credential_redaction
from headway.domain.cluster import Cluster
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import NotFound
from headway.jobs.submission.batch_script import TASK_SUFFIX
from headway.jobs.submission.job_folders import user_folders
from headway.jobs.submission.resume_point import FOLDER
from headway.schemas.lineage.lineage import LineageOut
from headway.schemas.submission.exec_commands import ExecIn
from headway.schemas.submission.job_field_types import GitIn
from headway.schemas.submission.submit_request import SubmitIn
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.ownership_rights import authorize_action, cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.find_job import require_record
from headway.store import SWEEP_ID, JobRecord
from headway.transport.remote_program import program_source


async def get_lineage(state: AppState, who: Principal, name: str, job_id: int) -> LineageOut:
    """Returns what was submitted, by whom, from which commit, and what Slurm allocated. Secrets are masked."""
    cluster = await cluster_to_work_on(state, name, who)
    record = await require_record(state, cluster, who, job_id)
    await authorize_action(state, cluster, who, record, f"look into job {job_id}")
    request = SubmitIn.model_validate(record.request)
    with command_slot(state, who):
        job = await _job_or_none(state, cluster, job_id)
        folder, named_image = _checkpoint_folder(record, job), str(record.facts.get("container_image", ""))
        listed = await list_job_files(state, cluster, record.user, job_id, folder)
    of_sweep = record.pipeline.startswith(SWEEP_ID)
    ran = dict.fromkeys(str(entry["image"]) for entry in listed["used"] if entry.get("image"))
    images = [named_image] if named_image else [*ran]
    return LineageOut(
        job_id=job_id,
        cluster=name,
        submitted_at=record.at,
        person=record.person,
        user=record.user,
        kind=record.kind,
        parent=record.parent,
        pipeline="" if of_sweep else record.pipeline,
        step="" if of_sweep else record.step,
        sweep=record.pipeline if of_sweep else "",
        trial=int(record.step) if of_sweep else 0,
        script_name=request.script_name,
        script=credential_redaction.mask_script_text(request.script or ""),
        script_args=credential_redaction.mask_words(request.script_args),
        sbatch_args=credential_redaction.mask_words(request.args),
        workdir=request.chdir,
        env=request.env,
        bundle=request.bundle,
        git=GitIn.model_validate(request.git) if request.git else None,
        launcher=str(record.facts.get("launcher", "")),
        container_image=", ".join(images),
        container_digest=_image_digest(images[0] if images else "", listed["used"]),
        datasets=await _datasets(state, record),
        environments=await _environments(state, record),
        checkpoint_dir=folder,
        checkpoints=listed["checkpoints"],
        nodes=compress(job.nodes) if job else "",
        gpus=job.gpus if job else 0,
        partition=job.partition if job else "",
        account=job.account if job else "",
        state=job.state if job else "",
    )


async def _datasets(state: AppState, record: JobRecord) -> list[dict[str, str]]:
    """Returns the dataset versions that the job named. One that was removed since then says by whom and when."""
    rows: list[dict[str, str]] = [dict(row) for row in record.facts.get("datasets", [])]
    if not any("sha256" in row for row in rows):
        return rows
    known = {
        (version.name, str(version.number)): version
        for version in await state.store.datasets.versions(record.cluster, removed=True)
    }
    for row in rows:
        version = known.get((row["name"], row["version"]))
        if "sha256" in row and version is not None and version.removed_at is not None:
            row["removed"] = f"by {version.removed_by}{', by force' if version.forced else ''}"
            row["removed_at"] = f"{version.removed_at:.0f}"
    return rows


async def _environments(state: AppState, record: JobRecord) -> list[dict[str, str]]:
    """Returns the environments that the job named. One that was removed since then says by whom and when."""
    rows: list[dict[str, str]] = [dict(row) for row in record.facts.get("environments", [])]
    for row in rows:
        one = await state.store.environments.get(record.cluster, row["name"], int(row["version"]))
        if one.removed_at is not None:
            row["removed"] = f"by {one.removed_by}{', by force' if one.forced else ''}"
            row["removed_at"] = f"{one.removed_at:.0f}"
    return rows


def _checkpoint_folder(record: JobRecord, job: JobState | None) -> str:
    """Returns the folder of the job's, or of its array task's, checkpoints; "" if none is known."""
    folder = str(record.request.get("env", {}).get(FOLDER) or record.facts.get("checkpoints", ""))
    task = job.array_task if job and job.id != record.job_id else ""
    per_task = folder and task.isdigit() and TASK_SUFFIX in str(record.request.get("script") or "")
    return f"{folder}/{task}" if per_task else folder


async def _job_or_none(state: AppState, cluster: Cluster, job_id: int) -> JobState | None:
    try:
        return await state.backend.slurm.job(cluster, job_id)
    except NotFound:
        return None


async def list_job_files(state: AppState, cluster: Cluster, user: str, job_id: int, folder: str) -> dict[str, Any]:
    """Returns {"checkpoints": file names, "used": images that its steps ran}, read on the cluster as the owner."""
    used = f"{user_folders(cluster, user).shared}/.containers/.used-{job_id}"
    request = ExecIn(
        argv=["python3", "-I", "-S", "-c", program_source("list_job_files"), folder or "/nonexistent", used], user=user
    )
    done = await state.backend.commands.run_command(cluster, request, user)
    return dict(json.loads(base64.b64decode(done.stdout_b64))) if done.code == 0 else {"checkpoints": [], "used": []}


def _image_digest(image: str, used: Sequence[Mapping[str, str]]) -> str:
    """Returns the digest of the container image that ran, otherwise the one that its reference pins, otherwise ""."""
    for version in used:
        match = re.search(r"sha256-([0-9a-f]{64})", str(version.get("file", "")))
        if match and version.get("image") in (image, None, ""):
            return f"sha256:{match[1]}"
    return image.partition("@")[2] if "@sha256:" in image else ""
