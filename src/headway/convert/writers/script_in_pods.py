"""Rewrites a batch script so that every pod of a job can run it: srun is left out, and Slurm's variables are set."""

from __future__ import annotations

import re

from headway.convert.job_description import Job, Loss, Script
from headway.domain.slurm.sbatch_options import parse_options

# Variable -> shell text in a pod, with {nodes}, {tasks} and {name} filled in.
_VARIABLES = {
    "SLURM_JOB_ID": "{name}", "SLURM_JOBID": "{name}", "SLURM_JOB_NAME": "{name}",
    "SLURM_NNODES": "{nodes}", "SLURM_JOB_NUM_NODES": "{nodes}", "SLURM_NTASKS": "{tasks}", "SLURM_NPROCS": "{tasks}",
    "SLURM_NODEID": "{rank}", "SLURM_PROCID": "{rank}", "SLURM_LOCALID": "0",
    "SLURM_SUBMIT_DIR": "$PWD", "SLURM_JOB_NODELIST": "pods", "SLURM_NODELIST": "pods", "SLURMD_NODENAME": "$HOSTNAME",
    "SLURM_CPUS_PER_TASK": "{cpus}", "SLURM_GPUS_ON_NODE": "{gpus}", "SLURM_GPUS_PER_NODE": "{gpus}",
    "SLURM_NTASKS_PER_NODE": "{per_node}", "SLURM_ARRAY_TASK_ID": "{index}",
    "SLURM_RESTART_COUNT": "${{JOBSET_RESTART_ATTEMPT:-0}}",
}  # fmt: skip
_CHANGED = {
    "SLURM_JOB_ID": "the object's name", "SLURM_JOBID": "the object's name", "SLURM_SUBMIT_DIR": "the pod's first folder",
    "SLURM_LOCALID": "0",
}  # fmt: skip
_NAME = re.compile(r"\b(SLURMD?_[A-Z_]+)\b")
_SRUN = re.compile(r"(?P<before>^\s*|[;&|(]\s*|\b(?:exec|time|then|do)\s+)srun\s+(?P<rest>[^\n]*)")
_COMMANDS = re.compile(
    r"(?:^|[;&|(`]|\$\()\s*(scontrol|squeue|sacct|scancel|sbatch|sbcast|sattach|module|ml)\b(?P<rest>[^\n]*)"
)
_HOSTNAMES = re.compile(r"\s+show\s+hostnames?\b")


def script_in_pods(
    job: Job,
    script: Script,
    *,
    name: str,
    nodes: int,
    tasks_per_node: int,
    gpus: int,
    host: str | None,
    index: str,
    losses: list[Loss],
    rank: str = "JOB_COMPLETION_INDEX",
) -> str:
    """Returns the text that each pod runs. `host`: shell text of a pod's name in the network, with $index; None
    if pods have no such names. `index`: shell text of the number of an array's task. `rank`: the variable with the number
    of a pod."""
    added = len(job.preamble)
    lines = [*job.preamble, *script.lines]
    text = "\n".join(lines)
    values = {
        "name": name, "nodes": str(nodes), "tasks": str(nodes * tasks_per_node), "per_node": str(tasks_per_node),
        "cpus": job.options.get("cpus-per-task", "1"), "gpus": str(gpus), "index": index, "rank": f"${{{rank}:-0}}",
    }  # fmt: skip
    head: list[str] = []
    found = [
        one
        for one in dict.fromkeys(_NAME.findall(text))
        if not re.search(rf"^\s*(?:export\s+)?{one}=", text, re.MULTILINE)
    ]
    head += [f"export {name}={_VARIABLES[name].format(**values)}" for name in found if name in _VARIABLES]
    if host is not None and re.search(r"scontrol\s+show\s+hostnames?\b", text):
        head.append(f'scontrol() {{ for index in $(seq 0 {nodes - 1}); do echo "{host}"; done; }}')
    kept: list[str] = []
    for at, line in enumerate(lines):
        where = f"line {script.first_line + at - added}" if at >= added else ""
        if not line.lstrip().startswith("#"):
            _name_unknown(line, where, [one for one in found if one not in _VARIABLES], host is not None, losses)
            line = _without_srun(line, where, tasks_per_node, rank, losses)
        kept.append(line)
    return "\n".join([*head, *kept])


def _name_unknown(line: str, where: str, variables: list[str], has_names: bool, losses: list[Loss]) -> None:
    losses += [
        Loss(where, variable, "changed", f"it is {_CHANGED[variable]}")
        for variable in _CHANGED
        if re.search(rf"\b{variable}\b", line)
    ]
    losses += [
        Loss(where, variable, "lost", "no pod has this variable", "set it in the script")
        for variable in variables
        if re.search(rf"\b{variable}\b", line)
    ]
    for match in _COMMANDS.finditer(line):
        if has_names and match[1] == "scontrol" and _HOSTNAMES.match(match["rest"]):
            losses.append(Loss(where, "scontrol show hostnames", "changed", "it prints the names of the pods"))
        elif match[1] in ("module", "ml"):
            losses.append(
                Loss(
                    where,
                    f"{match[1]}{match['rest']}"[:60],
                    "lost",
                    "images have no modules",
                    "take an image with the software",
                )
            )
        else:
            losses.append(Loss(where, match[1], "lost", "pods have no commands of Slurm", "remove it"))


def _without_srun(line: str, where: str, tasks_per_node: int, rank: str, losses: list[Loss]) -> str:
    match = _SRUN.search(line)
    if match is None:
        return line
    words = match["rest"].split(" ")
    left = [word for word in words if word]
    removed: list[str] = []
    while left and left[0].startswith("-") and left[0] != "-":
        option = next(iter(parse_options(left)))
        count = len(option.words)
        removed += left[:count]
        left = left[max(1, count) :]
    why = "every pod runs the whole script, so srun is left out"
    remedy = f"lines that must run once: test ${rank}"
    if tasks_per_node > 1:
        why += f"; of {tasks_per_node} tasks on a node one is started"
        remedy = "start the others by torchrun --nproc-per-node or mpirun"
    losses.append(Loss(where, f"srun {' '.join(removed)}".strip(), "changed", why, remedy))
    return f"{line[: match.start()]}{match['before']}{' '.join(left)}{line[match.end() :]}"
