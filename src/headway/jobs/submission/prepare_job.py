"""Prepares what sbatch is given for a request: the script of `headway run`, and the folder that files are sent to.
Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from headway.domain.cluster import Cluster
from headway.errors import Fault, Refused
from headway.jobs.submission.batch_script import Script, StepProgram, run_script
from headway.jobs.submission.job_folders import user_folders
from headway.jobs.submission.job_secrets import with_secrets
from headway.jobs.submission.node_capacity import NodeCapacity
from headway.jobs.submission.run_check import run_faults
from headway.jobs.submission.software_environment import with_environment
from headway.jobs.submission.stage_in import with_stage
from headway.jobs.submission.submit import JobFiles
from headway.paths import node_dir
from headway.schemas.submission.run_request import RunIn, RunOut, ScriptLine
from headway.schemas.submission.submit_request import SubmitIn
from headway.transport.remote_program import program_source

_MARKED = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")  # the mark in the name of a job's own folder


@dataclass(frozen=True)
class PreparedJob:
    """A request that is ready for sbatch, and the files that it needs. `script` is None for the user's own script."""

    request: SubmitIn
    stage: JobFiles | None
    script: Script | None = None
    launcher: str = ""
    checkpoints: str = ""  # the folder of its checkpoints, where it is known

    @property
    def job_folder(self) -> str:
        """Returns the job's own folder, or ""."""
        return self.stage.work if self.stage else ""


def prepare_run(
    run: RunIn,
    cluster: Cluster,
    user: str,
    mark: str,
    *,
    work: str = "",
    plan: str = "",
    offer: NodeCapacity | None = None,
) -> PreparedJob:
    """Returns the job of `headway run`. `mark` makes the job's folder unique. `work` is a folder that steps of a
    pipeline share (each step has its own checkpoints), `plan` the text of the pipeline's plan if its steps have outputs.
    `offer` is what the nodes have; None means as their plans say. Raises Refused with every fault."""
    from headway.jobs.submission.batch_script import job_name

    there = user_folders(cluster, user)
    files: dict[str, str] = {}

    def sent(text: str, name: str) -> str:
        path = there.helper_path(hashlib.sha256(text.encode()).hexdigest(), name)
        files[path] = text
        return path

    helper = sent(program_source("rank_launcher"), "launch")
    # Sent with the job, because a container image need not have the package.
    warner = sent((node_dir() / "train" / "headway_train" / "__main__.py").read_text(), "warn") if run.warn else ""
    ray = sent(program_source("ray_cluster"), "ray") if run.launcher == "ray" else ""
    step = None
    if plan:
        path = there.plan_path(hashlib.sha256(plan.encode()).hexdigest())
        files[path] = plan
        step = StepProgram(sent(program_source("pipeline_step"), "step"), path, job_name(run))
    folder = work or there.job_folder(job_name(run), mark)
    checkpoints = f"{folder}/checkpoints/{job_name(run)}" if work else f"{folder}/checkpoints"
    script = run_script(
        run, cluster, there, folder, helper, checkpoints, warner=warner, ray=ray, step=step, offer=offer
    )
    request = SubmitIn(
        args=run.sbatch,
        script=script.text(),
        script_name=script.name,
        script_args=list(script.args),
        chdir=folder,
        bundle=run.bundle,
        env=run.env,
        git=run.git,
    )
    return PreparedJob(request, JobFiles(there.root, run.bundle, folder, files), script, script.launcher, checkpoints)


def preview_run(
    run: RunIn, cluster: Cluster, user: str, offer: NodeCapacity | None = None
) -> tuple[SubmitIn | None, list[Fault]]:
    """Returns the request that `headway run` would make, for display only, or its faults by field."""
    found = run_faults(run, cluster, offer)
    if found:
        return None, found
    try:
        return prepare_run(run, cluster, user, "check", offer=offer).request, []
    except Refused as error:
        return None, [Fault("argv", error.message, error.hint)]


def prepare_submit(request: SubmitIn, cluster: Cluster, user: str, mark: str) -> PreparedJob:
    """Returns the job of a user's script, unchanged except for lines that copy its datasets and use its environment.
    With a bundle it
    works in a copy of those files (`chdir` is relative to that copy)."""
    request = with_secrets(with_environment(with_stage(request)))
    if not request.bundle:
        return PreparedJob(request, None)
    there = user_folders(cluster, user)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", PurePosixPath(request.script_name).stem).lstrip("._-") or "job"
    work = there.job_folder(name[:64], mark)
    inside = PurePosixPath(work) / request.chdir
    return PreparedJob(request.model_copy(update={"chdir": str(inside)}), JobFiles(there.root, request.bundle, work))


def job_own_folder(request: SubmitIn, cluster: Cluster, user: str) -> str:
    """Returns the folder that was made for this job, or for its pipeline; "" for a job that works in a folder of
    the user's."""
    runs, inside = PurePosixPath(user_folders(cluster, user).jobs_root), PurePosixPath(request.chdir)
    first = inside.relative_to(runs).parts[0] if runs in inside.parents else ""
    return str(runs / first) if _MARKED.search(first) else ""


def prepare_resubmit(
    request: SubmitIn,
    facts: Mapping[str, Any],
    cluster: Cluster,
    user: str,
    mark: str,
    change: SubmitIn | None = None,
) -> PreparedJob:
    """Returns the same request in a new copy of the same files, with its own checkpoints. `facts` are those stored
    of the first run; its helper program still exists at the path in the script. `change` brings another script,
    words and flags: lines and words that the first request also had get the new folder's path, and new ones stay
    as written."""
    there = user_folders(cluster, user)
    launcher, checkpoints = str(facts.get("launcher", "")), str(facts.get("checkpoints", ""))
    new = change or request
    fields: dict[str, Any] = {
        "script": new.script,
        "script_name": new.script_name,
        "script_args": new.script_args,
        "args": new.args,
    }
    old = job_own_folder(request, cluster, user)
    if not old:
        fresh = request.model_copy(update={**fields, "chdir": new.chdir})
        return PreparedJob(fresh, None, launcher=launcher, checkpoints=checkpoints)
    work = there.job_folder(_MARKED.sub("", PurePosixPath(old).name), mark)

    def moved(texts: Sequence[str], before: Sequence[str]) -> list[str]:
        known = set(before)
        return [text.replace(old, work) if text in known else text for text in texts]

    if new.script is not None:
        fields["script"] = "\n".join(moved(new.script.split("\n"), (request.script or "").split("\n")))
    fields |= {"script_args": moved(new.script_args, request.script_args), "args": moved(new.args, request.args)}
    fresh = request.model_copy(update={**fields, "chdir": request.chdir.replace(old, work)})
    stage = JobFiles(there.root, request.bundle, work)
    return PreparedJob(fresh, stage, launcher=launcher, checkpoints=checkpoints.replace(old, work))


def run_out(
    prepared: PreparedJob, cluster: str, user: str, job_id: int = 0, message: str = "", warning: str = ""
) -> RunOut:
    """Returns the answer to a run: its job, and the script line by line."""
    lines = prepared.script.lines if prepared.script else ()
    return RunOut(
        job_id=job_id,
        cluster=cluster,
        user=user,
        workdir=prepared.request.chdir,
        script=[ScriptLine(text=line.text, origin=line.origin) for line in lines],
        script_args=list(prepared.request.script_args),
        message=message,
        warning=warning,
    )
