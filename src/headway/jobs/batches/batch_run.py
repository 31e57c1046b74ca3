"""A batch as a job: an array whose tasks are workers. Pure."""

from __future__ import annotations

import hashlib
import json

from headway.domain.access.credential_redaction import mask_words
from headway.domain.cluster import Cluster
from headway.jobs.submission.job_folders import user_folders
from headway.schemas.submission.batches import BatchIn
from headway.schemas.submission.run_request import RunIn
from headway.transport.remote_program import program_source

VLLM = "vllm serve {model} --port {port}"  # the server of a batch that names only a model


def worker_path(cluster: Cluster, user: str) -> str:
    """Returns the path of the worker's program in the user's folder."""
    digest = hashlib.sha256(program_source("batch_worker").encode()).hexdigest()
    return user_folders(cluster, user).helper_path(digest, "batch")


def state_folder(cluster: Cluster, user: str, name: str, mark: str) -> str:
    """Returns the folder of the state of a batch, in the folder of its job."""
    return f"{user_folders(cluster, user).job_folder(name, mark)}/batch"


def masked_command(command: str) -> str:
    """Returns the command of a server with the values of secrets masked."""
    return " ".join(mask_words(command.split()))


def batch_run(request: BatchIn, *, rows: str, folder: str, worker: str) -> RunIn:
    """Returns the run of the array. `rows`: the path of the input; `worker`: that of the worker's program."""
    server = "" if request.program else request.server or VLLM
    program = request.program or masked_command(server)  # all users can read the output
    settings = {
        "folder": folder,
        "input": rows,
        "shard_rows": request.shard_rows,
        "call_rows": request.call_rows,
        "call_s": request.call_s,
        "tries": request.tries,
        "lease_s": request.lease_s,
        "start_s": request.start_s,
        "program": request.program,
        "server": server,
        "model": request.model,
        "about": {"name": request.output, "input": rows, "model": request.model, "program": program},
    }
    env = {**request.job.env, "HEADWAY_BATCH": json.dumps(settings), "HEADWAY_BATCH_MODEL": request.model}
    run = RunIn.model_validate(
        {
            **request.job.model_dump(),
            "launcher": "python",
            "argv": ["python3", worker, "work"],
            "name": request.output,
            "env": env,
            "bundle": request.bundle,
            "git": request.git,
        }
    )
    run.sbatch.append(f"--array=0-{request.workers - 1}")
    return run
