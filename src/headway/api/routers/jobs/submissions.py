"""Submission of jobs: scripts, commands, file bundles, retries and reruns."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from headway.api.auth.dependencies import Member, State
from headway.api.http.path_numbers import PathNumber
from headway.schemas.base import API_PREFIX
from headway.schemas.submission.bundles import BundleOut
from headway.schemas.submission.reruns import ResumeIn, RetryIn
from headway.schemas.submission.run_request import RunIn, RunOut
from headway.schemas.submission.submission_check import CheckJobIn, CheckJobOut
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.services.jobs import bundles, reruns, resume, submission

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["jobs"])
Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]  # SHA-256 of a bundle


@router.post("/jobs", status_code=201, name="submit")
async def submit_job(name: str, request: SubmitIn, state: State, who: Member) -> SubmitOut:
    """Submits a batch script with the cluster's own sbatch as the person's user."""
    return await submission.submit_script(state, who, name, request)


@router.post("/jobs/check", name="check")
async def check_job(name: str, body: CheckJobIn, state: State, who: Member) -> CheckJobOut:
    """Returns whether the job could be submitted, and when and where it would start. Submits nothing."""
    return await submission.check_submission(state, who, name, body)


@router.post("/run", status_code=201, name="run")
async def run_job(name: str, request: RunIn, state: State, who: Member) -> RunOut:
    """Makes a batch script from a command and submits it. With `dry_run` it only makes the script."""
    return await submission.submit_command(state, who, name, request)


@router.get("/bundles/{digest}")
async def get_bundle(name: str, digest: Digest, state: State, who: Member, user: str = "") -> BundleOut:
    """Returns whether this bundle of files is already on the cluster."""
    return await bundles.find_bundle(state, who, name, digest, user)


@router.put("/bundles/{digest}")
async def put_bundle(
    name: str, digest: Digest, state: State, who: Member, request: Request, user: str = ""
) -> BundleOut:
    """Stores a tar.gz of files on the cluster under its digest, read-only and owned by the person's user."""
    return await bundles.store_bundle(state, who, name, digest, user, request.stream())


@router.post("/jobs/{job_id}/retry", status_code=201, name="retry")
async def retry_job(name: str, job_id: PathNumber, request: RetryIn, state: State, who: Member) -> SubmitOut:
    """Submits the failed tasks of an array again, with the same script in the same folder."""
    return await reruns.retry_failed_tasks(state, who, name, job_id, request)


@router.post("/jobs/{job_id}/rerun", status_code=201, name="rerun")
async def rerun_job(name: str, job_id: PathNumber, request: RetryIn, state: State, who: Member) -> SubmitOut:
    """Submits the same script, arguments, environment and files again, in a new folder. With `task` only that task of
    an array."""
    return await reruns.rerun_job(state, who, name, job_id, request)


@router.post("/jobs/{job_id}/resume", status_code=201, name="resume")
async def resume_job(name: str, job_id: PathNumber, request: ResumeIn, state: State, who: Member) -> SubmitOut:
    """Submits the same job again, in a new folder, where it continues from a checkpoint that the first job has kept. With
    `task` only that task of an array."""
    return await resume.resume_job(state, who, name, job_id, request)
