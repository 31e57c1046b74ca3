"""The batch script that `headway run` makes: every line with its origin. Pure.

No text of the user becomes part of a shell line here: the command and the container flags are arguments of the script, and
the #SBATCH lines contain only checked words. `insert_arguments` quotes the arguments when the script is sent to sbatch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headway.domain.cluster import Cluster
from headway.errors import Refused
from headway.jobs.submission.job_folders import UserFolders
from headway.jobs.submission.job_secrets import FLAG as SECRET_FLAG
from headway.jobs.submission.job_secrets import secret_flag
from headway.jobs.submission.launcher_choice import by_mpirun, launcher_of
from headway.jobs.submission.node_capacity import NodeCapacity
from headway.jobs.submission.run_check import AFTER, option_faults
from headway.jobs.submission.software_environment import FLAG as ENVIRONMENT_FLAG
from headway.jobs.submission.software_environment import environment_lines
from headway.jobs.submission.stage_in import EXPORT, stage_lines
from headway.schemas.submission.run_request import ContainerIn, RunIn

_DEPENDENCY = {"ok": "afterok", "any": "afterany", "notok": "afternotok", "start": "after"}
# Options of torchrun that take no value.
_TORCHRUN_ALONE = {"--standalone", "-m", "--module", "--no-python", "--run-path", "--virtual-local-rank"}
# Added to a folder of checkpoints, so that tasks of an array do not resume from each other's.
TASK_SUFFIX = "${SLURM_ARRAY_TASK_ID:+/$SLURM_ARRAY_TASK_ID}"


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A line of the script."""

    text: str
    origin: str = ""  # the flag or default that the line comes from


@dataclass(frozen=True, slots=True)
class StepProgram:
    """The program that passes outputs between the steps of a pipeline (node/pipeline_step): its path, the path of the
    pipeline's plan, and the step's name."""

    path: str
    plan: str
    step: str

    def command(self, verb: str) -> str:
        """Returns the shell words of one of its commands."""
        return f'python3 "$step" {verb} "$plan" {self.step}'


@dataclass(frozen=True)
class Script:
    """A batch script. `args` are its arguments: first `flags` container flags, then the torchrun to use where the user named
    one, then the command."""

    name: str
    launcher: str
    lines: tuple[BatchLine, ...]
    args: tuple[str, ...]
    flags: int

    def text(self) -> str:
        """Returns the script as text."""
        return "".join(f"{line_with_origin(line)}\n" for line in self.lines)


def line_with_origin(line: BatchLine) -> str:
    """Returns the line with its origin as a comment."""
    return f"{line.text:<48} # {line.origin}" if line.origin else line.text


def run_script(
    run: RunIn,
    cluster: Cluster,
    place: UserFolders,
    work: str,
    helper: str,
    checkpoints: str = "",
    *,
    warner: str = "",
    ray: str = "",
    step: StepProgram | None = None,
    offer: NodeCapacity | None = None,
) -> Script:
    """Returns the script of a run. `checkpoints` is their folder, where it is not the one in `work`. `warner` is
    the program that passes a warning on to ranks, and `ray` the one that starts Ray, where they are requested. `step`: of
    a step of a pipeline whose steps have outputs. `offer` is what the nodes have; None means as their plans say. Raises
    Refused with every fault at once."""
    launcher = run.launcher or launcher_of(run.argv[0])
    faults = option_faults(run, cluster, launcher, offer)
    if faults:
        raise Refused("\n".join(["this can't be run:", *(f"  {fault}" for fault in faults)]))
    torchrun, command = _command(run, launcher)
    flags = container_flags(run.container, place, work) if run.container else []
    workers, why = _workers(run, cluster, launcher)
    lines = [
        BatchLine("#!/bin/bash"),
        *_header(run, cluster, launcher, work),
        *_body(
            run,
            launcher,
            (helper, warner, ray),
            checkpoints or f"{work}/checkpoints",
            (workers, why),
            len(flags),
            torchrun,
            step,
        ),
    ]
    named = (torchrun,) if torchrun else ()
    return Script(job_name(run), launcher, tuple(lines), (*flags, *named, *command), len(flags))


def job_name(run: RunIn) -> str:
    """Returns the given name, or the name of the file that is run: "train" for `torchrun train.py`."""
    if run.name:
        return run.name
    words = [word for word in run.argv if not word.startswith("-")]
    named = next((word for word in words if word.endswith((".py", ".sh"))), words[0] if words else "run")
    last = named.rpartition("/")[2]
    clean = re.sub(r"[^A-Za-z0-9._-]", "-", last.rpartition(".")[0] or last).lstrip("._-")
    return clean[:64] or "run"


def dependency(after: list[str]) -> str:
    """Returns the value of --dependency: ["ok:12", "any:13"] -> "afterok:12,afterany:13". Raises Refused for any
    other word."""
    found = []
    for word in after:
        match = AFTER.fullmatch(word)
        if match is None:
            raise Refused(
                f"--after {word[:60]!r} is not a condition", hint="use ok:123, notok:123, any:123 or start:123"
            )
        found.append(f"{_DEPENDENCY[match[1]]}:{match[2]}{match[3] or ''}")
    return ",".join(found)


def container_flags(container: ContainerIn, place: UserFolders, work: str) -> list[str]:
    """Returns the container flags of a run. The job's files have the same path inside and outside of the
    container."""
    shared = f"{place.shared}:{place.shared}:rw"
    flags = [
        f"--container-image={container.image}",
        f"--container-mounts={','.join([shared, *container.mounts])}",
        f"--container-workdir={container.workdir or work}",
    ]
    if container.name:
        flags.append(f"--container-name={container.name}")
    if container.mount_home is not None:
        flags.append("--container-mount-home" if container.mount_home else "--no-container-mount-home")
    return flags


def _command(run: RunIn, launcher: str) -> tuple[str, list[str]]:
    """Returns torchrun's path, where the user named its folder or that of its Python ("/scratch/me/venv/bin/python train.py"),
    otherwise ""; and the arguments of the command: without the word torchrun, which the script adds, and without `python`
    before a script that torchrun runs."""
    argv = list(run.argv)
    folder, slash, last = argv[0].rpartition("/")
    if launcher != "torchrun":
        return "", argv
    if last == "torchrun":
        argv = argv[1:]
    elif re.fullmatch(r"python3?(\.\d+)?", last):
        argv = argv[2:] if argv[1:2] == ["-u"] else argv[1:]
    else:
        slash = ""
    if not argv:
        raise Refused("torchrun needs a script", hint="headway run -- torchrun train.py")
    return f"{folder}/torchrun" if slash else "", argv


def _workers(run: RunIn, cluster: Cluster, launcher: str) -> tuple[int, str]:
    """Returns the number of processes on each node that share its CPUs, and the reason for it."""
    if run.tasks:
        return run.tasks, "--tasks"
    if launcher == "python":
        return 1, "launcher python: one process"
    if launcher == "ray":
        return 1, "launcher ray: Ray starts its own workers"
    if cluster.simulated_gpus and launcher == "torchrun":
        return 1, "GPUs are SIMULATED: one process per node"
    return (run.gpus, "--gpus: one process per GPU") if run.gpus else (1, "no GPUs: one process per node")


def _header(run: RunIn, cluster: Cluster, launcher: str, work: str) -> Iterator[BatchLine]:
    workers, why = _workers(run, cluster, launcher)
    named = "--name" if run.name else "the command's name"
    yield BatchLine(f"#SBATCH --job-name={job_name(run)}", named)
    yield BatchLine(
        f"#SBATCH --nodes={run.nodes}", "--nodes" if run.nodes > 1 else "one node, because --nodes is not given"
    )
    if launcher in ("srun", "mpi"):
        yield BatchLine(f"#SBATCH --ntasks-per-node={workers}", why)
    else:
        yield BatchLine("#SBATCH --ntasks-per-node=1", f"launcher {launcher}: it starts the other processes")
    if run.gpus:
        yield BatchLine(f"#SBATCH --gpus-per-node={run.gpus}", "--gpus")
    if run.time:
        yield BatchLine(f"#SBATCH --time={run.time}", "--time")
    if run.partition:
        yield BatchLine(f"#SBATCH --partition={run.partition}", "--partition")
    if run.team:
        yield BatchLine(f"#SBATCH --account={run.team}", "--team")
    if run.secrets:
        yield BatchLine(f"#SBATCH {secret_flag(run.secrets)}", SECRET_FLAG)
    if run.after:
        yield BatchLine(f"#SBATCH --dependency={dependency(run.after)}", "--after")
    if launcher == "ray" and run.nodes > 1:
        yield BatchLine("#SBATCH --no-kill", "launcher ray: without a failed node, Ray continues on the others")
    if run.warn:
        yield BatchLine("#SBATCH --signal=USR1@120", "--warn")
    yield BatchLine("#SBATCH --requeue", "return the job to the queue when a node fails")
    yield BatchLine("#SBATCH --open-mode=append", "one log for all restarts")
    yield BatchLine("#SBATCH --output=%x-%j.out", "in the job's own folder")
    yield BatchLine(f"#SBATCH --chdir={work}", "the job's copy of the submitted files")


def _body(
    run: RunIn,
    launcher: str,
    helpers: tuple[str, str, str],
    kept: str,
    workers: tuple[int, str],
    flags: int,
    torchrun: str,
    step: StepProgram | None,
) -> Iterator[BatchLine]:
    (helper, warner, ray), (count, why) = helpers, workers
    checkpoints = f"${{HEADWAY_CHECKPOINT_DIR:-{kept}}}{TASK_SUFFIX}"
    yield BatchLine("set -uo pipefail")
    yield BatchLine(f"helper={helper}", "sets network, ranks, threads and CPUs where they are not set")
    if run.warn and launcher == "torchrun":
        yield BatchLine(f"warner={warner}", "--warn: passes the warning signal to the ranks; torchrun would exit on it")
    if launcher == "ray":
        yield BatchLine(f"ray={ray}", "starts Ray on the nodes of the job, and the command")
    yield BatchLine(
        f'export HEADWAY_CHECKPOINT_DIR="{checkpoints}"', "the same after a restart; one per task of an array"
    )
    yield BatchLine('mkdir -p "$HEADWAY_CHECKPOINT_DIR"')
    yield BatchLine(f"export HEADWAY_LAUNCHER={launcher}", "--launcher" if run.launcher else "the command's first word")
    yield BatchLine(f"export HEADWAY_WORKERS={count}", why)
    for text in environment_lines(run.environment):
        yield BatchLine(text, ENVIRONMENT_FLAG)
    yield BatchLine(EXPORT, "per job and node, removed when the job ends")
    for text in stage_lines(run.stage_in):
        yield BatchLine(text, "--stage-in")
    if flags:
        yield BatchLine(f'container=("${{@:1:{flags}}}"); shift {flags}', "the first arguments: --container-*")
        yield BatchLine("export HEADWAY_CONTAINER=1")
    if torchrun:
        yield BatchLine("torchrun=$1; shift", "the command's first word")
    if step:
        yield BatchLine(f"step={step.path}; plan={step.plan}", "reads and records outputs of steps")
        yield BatchLine(f'before=$({step.command("begin")} "$@") || exit', "outputs of the steps that it needs")
        yield BatchLine('eval "$before"', "ends here if the step is skipped or cached")
    yield BatchLine('settings=$(python3 "$helper" job) || exit', "MASTER_ADDR, a free MASTER_PORT, HEADWAY_HOSTFILE")
    yield BatchLine('eval "$settings"')
    yield BatchLine('echo "--- job $SLURM_JOB_ID on $SLURM_JOB_NODELIST, restart ${SLURM_RESTART_COUNT:-0} ---"')
    # Slurm sends the warning to a job's steps, never to the script itself.
    on_host = (launcher == "python" and not run.warn) or (launcher == "mpi" and by_mpirun(run))
    if on_host and not flags:
        why = "starts the command here, passes SIGTERM on to it; waits for the requeue when a node failed"
        after = f"{step.command('end')} " if step else ""
        yield BatchLine(f'exec python3 "$helper" run {after}-- "$@"', why)
        return
    yield from _start(run, launcher, bool(flags), '"$torchrun"' if torchrun else "torchrun", last=step is None)
    if step:
        yield BatchLine("status=$?")
        yield BatchLine(f'[ "$status" != 0 ] || {step.command("end")} || status=1', "records the step's outputs")
    status = "$status" if step else "$?"
    if launcher != "ray":
        yield BatchLine(f'exec python3 "$helper" end {status}', "waits for the requeue when a node failed")
    elif step:
        yield BatchLine("exit $status")


def _start(run: RunIn, launcher: str, in_container: bool, torchrun: str, *, last: bool) -> Iterator[BatchLine]:
    """Yields the lines that run the command. `last`: no line of the script has to run after Ray."""
    step = ["srun", "--kill-on-bad-exit=1"]
    if launcher == "python":
        step += ["--nodes=1", "--ntasks=1"]
    if in_container:
        step.append('"${container[@]}"')
    program = '"$@"'
    if launcher == "torchrun":
        words = _torchrun(run)
        before = ['python3 "$warner"'] if run.warn else []
        program = " ".join([*before, torchrun, *words, '"$@"'])
    why = "the command of the step; Slurm shows the arguments of srun to all users"
    yield BatchLine(f'HEADWAY_COMMAND=$(python3 "$helper" quote {program}) && export HEADWAY_COMMAND || exit', why)
    if launcher == "ray":
        words = [
            f'{"exec " if last else ""}python3 "$ray" job "$helper"',
            *(['"${container[@]}"'] if in_container else []),
        ]
        yield BatchLine(
            " ".join(words), "launcher ray: its head and the command on the first node, workers on the others"
        )
        return
    task = 'python3 "$helper" task'
    if in_container:  # an image without Python still runs, without the helper's settings
        bare = 'eval "set -- $HEADWAY_COMMAND"; unset HEADWAY_COMMAND; exec "$@"'
        task = f"""sh -c 'command -v python3 >/dev/null && exec python3 "$0" task; {bare}' "$helper\""""
    yield BatchLine(f"{' '.join(step)} {task}", f"launcher {launcher}")


def _torchrun(run: RunIn) -> list[str]:
    """Returns torchrun's options that the user has not set."""
    given = set(_torchrun_options(run.argv))
    if "--standalone" in given:
        return []
    every = {
        "--nnodes": '"$SLURM_JOB_NUM_NODES"',
        "--nproc-per-node": '"$HEADWAY_WORKERS"',
        "--rdzv-id": '"$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}"',
        "--rdzv-backend": "c10d",
        "--rdzv-endpoint": '"$MASTER_ADDR:$MASTER_PORT"',
    }
    return [f"{name}={value}" for name, value in every.items() if name not in given]


def _torchrun_options(argv: list[str]) -> Iterator[str]:
    """Yields the names of options before torchrun's script, with dashes."""
    left = list(argv[1:]) if argv[0].rpartition("/")[2] == "torchrun" else []
    while left and left[0].startswith("-"):
        word = left.pop(0)
        name, equals, _ = word.partition("=")
        name = name.replace("_", "-")
        yield name
        if not equals and name not in _TORCHRUN_ALONE and left:
            left.pop(0)
