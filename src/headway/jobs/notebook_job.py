"""JupyterLab as a job: its script, and the folder that the job and the server share. Pure.

Jupyter listens on a Unix socket of its owner, which no other user of the node can reach. Its token is a secret that
the job gets in its environment, keeps in its own file and never has in a command line. The notebook's id is not in a
command line either, nor is the address that contains it: Slurm shows a job's arguments and file names to all users,
and a node shows its processes."""

from __future__ import annotations

import hashlib

from headway.domain.cluster import Cluster
from headway.errors import Fault, Refused
from headway.jobs.submission.job_folders import user_folders
from headway.jobs.submission.node_capacity import NodeCapacity
from headway.jobs.submission.prepare_job import PreparedJob
from headway.jobs.submission.submit import JobFiles
from headway.schemas.submission.notebooks import NotebookIn
from headway.schemas.submission.submit_request import SubmitIn
from headway.transport.remote_program import program_source

SECRET_VARIABLE = "HEADWAY_NOTEBOOK_SECRET"  # noqa: S105 (the name of a variable)
# The secret path segment of the address. Its name says SECRET, so that the stored request masks it.
BASE_VARIABLE = "HEADWAY_NOTEBOOK_BASE_SECRET"

_SCRIPT = """\
#!/bin/bash
# JupyterLab, led to by the Headway server. $1: its folder, $2: seconds idle, $3: program that makes kernels.
set -u
umask 077
folder=$1 idle=$2 base=${HEADWAY_NOTEBOOK_BASE_SECRET?}
mkdir -p "$folder" && chmod 700 "$folder" && cd || exit
rm -f "$folder/socket"
printf %s "${HEADWAY_NOTEBOOK_SECRET?}" >"$folder/secret"
unset HEADWAY_NOTEBOOK_SECRET HEADWAY_NOTEBOOK_BASE_SECRET
trap 'rm -f "$folder/secret" "$folder/socket"' EXIT
export JUPYTER_TOKEN_FILE=$folder/secret
export PATH=$HOME/.local/bin:$PATH
if ! command -v jupyter-lab >/dev/null; then
    echo "there is no jupyter-lab on $(uname -n). Debian 13's node image has it; elsewhere: pip install --user jupyterlab"
    exit 127
fi
# A kernel for each software environment.
/usr/bin/python3 "$3" "$folder" && export JUPYTER_PATH=$folder/jupyter${JUPYTER_PATH:+:$JUPYTER_PATH}
# No question about news.
printf '{"LabApp": {"news_url": null}, "ServerApp": {"base_url": "%s"}}' "$base" >"$folder/config.json"
jupyter-lab --no-browser --config="$folder/config.json" --ServerApp.sock="$folder/socket" --ServerApp.sock_mode=0600 \\
    --ServerApp.root_dir="$HOME" --ServerApp.allow_remote_access=True \\
    --ServerApp.quit_button=False \\
    --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate \\
    --ServerApp.shutdown_no_activity_timeout="$idle" --MappingKernelManager.cull_idle_timeout="$idle" \\
    --MappingKernelManager.cull_interval=20 --MappingKernelManager.cull_connected=True \\
    --TerminalManager.cull_inactive_timeout="$idle" --TerminalManager.cull_interval=20 &
lab=$!
trap 'kill "$lab"; wait "$lab"' TERM
wait "$lab"
"""


def notebook_path(notebook_id: str) -> str:
    """Returns the path at which a notebook's addresses begin."""
    return f"/n/{notebook_id}/"


def notebook_socket(folder: str) -> str:
    """Returns the path of the socket in the notebook's folder."""
    return f"{folder}/socket"


def prepare_notebook(
    notebook_request: NotebookIn, cluster: Cluster, offer: NodeCapacity, user: str, notebook_id: str, secret: str
) -> tuple[PreparedJob, str]:
    """Returns the job for sbatch, and the notebook's folder. Raises Refused with every fault."""
    faults = list(_faults(notebook_request, cluster, offer))
    if faults:
        raise Refused("\n".join(["this notebook can't be started:", *(f"  {fault}" for fault in faults)]))
    there = user_folders(cluster, user)
    folder = f"{there.root}/notebooks/{hashlib.sha256(f'folder {notebook_id}'.encode()).hexdigest()[:16]}"
    program = program_source("notebook_kernels")
    kernels = there.helper_path(hashlib.sha256(program.encode()).hexdigest(), "kernels")
    args = [
        "--job-name=notebook",
        "--nodes=1",
        "--ntasks=1",
        f"--time={notebook_request.time}",
        "--requeue",
        "--open-mode=append",
        f"--output={folder}/log",
    ]
    if notebook_request.gpus:
        args.append(f"--gpus-per-node={notebook_request.gpus}")
    if notebook_request.partition:
        args.append(f"--partition={notebook_request.partition}")
    if notebook_request.team:
        args.append(f"--account={notebook_request.team}")
    request = SubmitIn(
        args=args,
        script=_SCRIPT,
        script_name="notebook",
        script_args=[folder, str(notebook_request.idle_minutes * 60), kernels],
        env={SECRET_VARIABLE: secret, BASE_VARIABLE: notebook_path(notebook_id)},
    )
    stage = JobFiles(there.root, "", folder, {kernels: program})
    return PreparedJob(request, stage, launcher="notebook"), folder


def _faults(notebook_request: NotebookIn, cluster: Cluster, offer: NodeCapacity) -> list[Fault]:
    found = []
    if notebook_request.gpus > offer.gpus:
        found.append(Fault("gpus", f"a node of {cluster.name} has {offer.gpus}", "request fewer"))
    partitions = [partition.name for partition in cluster.partitions]
    if notebook_request.partition and notebook_request.partition not in partitions:
        found.append(
            Fault("partition", f"there is no {notebook_request.partition!r}", f"there is {', '.join(partitions)}")
        )
    teams = [team.name for team in cluster.teams]
    if notebook_request.team and notebook_request.team not in teams:
        found.append(Fault("team", f"there is no {notebook_request.team!r}", f"there is {', '.join(teams)}"))
    return found
