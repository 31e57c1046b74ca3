"""`--stage-in`: lines that a script runs before its first command, which copy a dataset to each node's own disk. Pure.

The job has its own /tmp on each node, which is removed at its end, however it ends (by the prolog and epilog)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from headway.domain.dataset import FOLDER
from headway.errors import Fault, Refused
from headway.jobs.submission.requested_resources import RequestedResources, requested_resources
from headway.jobs.submission.user_script_lines import insert_lines
from headway.schemas.submission.submit_request import SubmitIn

SCRATCH = "/tmp"
EXPORT = f"export HEADWAY_SCRATCH={SCRATCH}"
_PINNED = re.compile(r"([a-z][a-z0-9_-]{0,30})@([0-9]{1,9})")
# Variables of the job's own request, unset for the copy: that takes one small task on each node.
_ASKED = (
    "CPUS_PER_TASK", "CPU_BIND", "DISTRIBUTION", "GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK", "GPU_BIND", "HINT", "NPROCS", "NTASKS",
    "NTASKS_PER_CORE", "NTASKS_PER_GPU", "NTASKS_PER_NODE", "NTASKS_PER_SOCKET", "THREADS_PER_CORE", "TRES_PER_TASK",
)  # fmt: skip


def stage_faults(stage_in: Sequence[str], wants: Sequence[RequestedResources]) -> Iterator[Fault]:
    """Yields what is wrong with `stage_in`. `wants` are the resources of each component of the job."""
    if not stage_in:
        return
    names = [dataset.partition("@")[0] for dataset in stage_in]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Fault("--stage-in", f"{name} is listed twice", "name one version")
    if len(wants) > 1:
        yield Fault(
            "--stage-in",
            "would copy only to the nodes of the first component",
            f"leave --stage-in out and read {FOLDER}: every node has it",
        )
    if any("container-image" in want.options for want in wants):
        mount = f"--container-mounts={FOLDER}:{FOLDER}:ro"
        yield Fault("--stage-in", "would copy to a folder outside the container", f"mount {FOLDER} instead: {mount}")


def stage_lines(stage_in: Sequence[str]) -> list[str]:
    """Returns the lines of the script that copy each NAME@VERSION. Raises ValueError for any other word, because
    the words become part of a script."""
    unset = " ".join(f"-u SLURM_{name}" for name in _ASKED)
    nodes = "$SLURM_JOB_NUM_NODES"
    srun = f'env {unset} srun --overlap --nodes="{nodes}" --ntasks="{nodes}" --ntasks-per-node=1'
    lines = []
    for dataset in stage_in:
        match = _PINNED.fullmatch(dataset)
        if match is None:
            raise ValueError(dataset)
        copied = f"{srun} cp -RT {FOLDER}/{match[1]}/{match[2]} {SCRATCH}/{match[1]}"
        lines.append(f'{copied} || {{ echo "headway: {dataset} could not be copied to every node" >&2; exit 1; }}')
    return lines


def with_stage(request: SubmitIn) -> SubmitIn:
    """Returns the request with a script that copies each NAME@VERSION of `stage_in` before its first command.
    Raises Refused where the script can't do that."""
    if not request.stage_in:
        return request
    if faults := list(stage_faults(request.stage_in, requested_resources(request))):
        raise Refused("\n".join(map(str, faults)))
    note = f"# --stage-in: {', '.join(request.stage_in)} below $HEADWAY_SCRATCH on each node"
    script = insert_lines(request, "--stage-in", [note, EXPORT, *stage_lines(request.stage_in)])
    return request.model_copy(update={"script": script, "stage_in": []})
