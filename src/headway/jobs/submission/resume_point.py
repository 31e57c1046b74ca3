"""Checkpoints of a job from which a new job can continue: their folders, their steps, and the request of the new job. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from headway.domain.cluster import Cluster
from headway.errors import Refused
from headway.jobs.submission.batch_script import TASK_SUFFIX
from headway.jobs.submission.job_folders import user_folders
from headway.jobs.submission.prepare_job import PreparedJob, prepare_resubmit
from headway.jobs.submission.submit import CheckpointLink, JobFiles
from headway.schemas.submission.submit_request import SubmitIn

FOLDER = "HEADWAY_CHECKPOINT_DIR"
RESUMED_FROM = "HEADWAY_RESUMED_FROM"  # JOB-step-N; headway_train reads it
# Folders of headway_train and of Hugging Face's Trainer
_CHECKPOINT = re.compile(r"(?:step|checkpoint)-(\d{1,15})")
_SETS_FOLDER = re.compile(rf"^\s*(?:export\s+)?{FOLDER}=(?!.*\$\{{?{FOLDER}\b)", re.MULTILINE)


def kept_steps(names: Iterable[str]) -> dict[int, str]:
    """Returns the names of checkpoints by step, in order, from all names in a folder."""
    found = {int(match[1]): name for name in names if (match := _CHECKPOINT.fullmatch(name))}
    return dict(sorted(found.items()))


def checkpoint_folder(
    request: SubmitIn, facts: Mapping[str, Any], shared: str, job_id: int, name: str, task: str
) -> str:
    """Returns the folder of a job's checkpoints. `shared`: the user's folder on shared storage; `job_id`, `name`: of
    the job, or of the array's task, in Slurm; `task`: a task of an array, or ""."""
    known = str(request.env.get(FOLDER) or facts.get("checkpoints") or "")
    folder = known or f"{shared}/{name}-{job_id}"
    return f"{folder}/{task}" if task and TASK_SUFFIX in (request.script or "") else folder


def prepare_resume(
    request: SubmitIn,
    facts: Mapping[str, Any],
    cluster: Cluster,
    user: str,
    mark: str,
    *,
    job_id: int,
    task: str,
    step: int,
    source: str,
    name: str,
) -> PreparedJob:
    """Returns the same request as a new job that begins with checkpoint `name` in folder `source`. Raises Refused for a script
    that names the folder of its checkpoints itself."""
    if _SETS_FOLDER.search(request.script or ""):
        raise Refused(
            f"the script of job {job_id} sets {FOLDER} itself, so a new job would use the checkpoints of the first",
            hint=f"write {FOLDER}=${{{FOLDER}:-YOUR FOLDER}} in the script, and submit it again",
        )
    fresh = prepare_resubmit(request, facts, cluster, user, mark)
    folder = fresh.checkpoints if fresh.stage and FOLDER not in request.env else ""
    label = f"{job_id}_{task}" if task else str(job_id)
    env = {**fresh.request.env, RESUMED_FROM: f"{label}-step-{step}"}
    stage = fresh.stage
    if not folder:
        shared = user_folders(cluster, user).shared
        folder = env[FOLDER] = f"{shared}/{PurePosixPath(request.script_name).stem or 'job'}-resumed-{mark}"
    if stage is None:
        stage = JobFiles(user_folders(cluster, user).root, "", folder)
    per_task = task and TASK_SUFFIX in (request.script or "")
    link = CheckpointLink(source, name, f"{folder}/{task}" if per_task else folder)
    sent = fresh.request.model_copy(update={"env": env})
    return replace(fresh, request=sent, stage=replace(stage, resume=link), checkpoints=folder)


def without_resume(request: SubmitIn) -> SubmitIn:
    """Returns the request of a resumed job without its checkpoint, for a job that begins from the start."""
    if RESUMED_FROM not in request.env:
        return request
    ours = {RESUMED_FROM}
    if "-resumed-" in PurePosixPath(request.env.get(FOLDER, "")).name:
        ours.add(FOLDER)
    env = {name: value for name, value in request.env.items() if name not in ours}
    return request.model_copy(update={"env": env})
