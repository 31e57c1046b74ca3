"""Reads the batch scripts that `headway run` makes: their program without Headway's launcher, which pods do not have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence

from headway.convert.job_description import Place
from headway.convert.readers.service_file import LOST
from headway.convert.reading_state import Reading
from headway.errors import Fault, InvalidSpec

_HELPER = re.compile(r"^helper=\S+/launch-[0-9a-f]+\.py\b", re.MULTILINE)
_LAUNCHER = re.compile(r"^export HEADWAY_LAUNCHER=(\w+)", re.MULTILINE)
_WORKERS = re.compile(r"^export HEADWAY_WORKERS=(\d+)(.*)$", re.MULTILINE)
_GPUS = re.compile(r"^#SBATCH --gpus-per-node=(\d+)", re.MULTILINE)
_CONTAINER = re.compile(r'^container=\("\$\{@:1:(\d+)\}"\)', re.MULTILINE)
_NAMED_TORCHRUN = re.compile(r"^torchrun=\$1; shift", re.MULTILINE)
_TORCHRUN = re.compile(r' quote (?:python3 "\$warner" )?(?:"\$torchrun"|torchrun)(.*) "\$@"\)')
_ENVIRONMENT = re.compile(r"^export PATH=.* HEADWAY_ENVIRONMENT=(\S+)", re.MULTILINE)
_STAGED = re.compile(r"^env .*\bsrun .*headway: (\S+) could not be copied", re.MULTILINE)
_STEP = re.compile(r"^step=\S+; plan=", re.MULTILINE)
_CHECKPOINTS = "HEADWAY_CHECKPOINT_DIR"
_OF_FOLDER = re.compile(
    r"#SBATCH --(output|open-mode|chdir)="
)  # the job's folder on the cluster, which pods do not have
_MEETS = (
    'export MASTER_ADDR="${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}"',
    'export MASTER_PORT="${MASTER_PORT:-29500}"',
)


def is_launcher_script(text: str) -> bool:
    """Returns whether `headway run` has made the script."""
    return _HELPER.search(text) is not None


def launcher(text: str) -> str:
    """Returns the launcher of a script that `headway run` has made."""
    found = _LAUNCHER.search(text)
    return found[1] if found else "python"


def plain_script(text: str, arguments: Sequence[str]) -> str:
    """Returns the same job as a script that starts the program itself. `arguments` are those of a script that `headway run` has
    made: options of the container, the torchrun that the user named, the command. Raises InvalidSpec without a command."""
    container = _CONTAINER.search(text)
    count = int(container[1]) if container else 0
    flags, words = arguments[:count], arguments[count + (1 if _NAMED_TORCHRUN.search(text) else 0) :]
    if not words:
        fault = Fault("", "has no command: its arguments are missing", "export the job that headway run submitted")
        raise InvalidSpec([fault], "the script of headway run")
    head = [line for line in text.splitlines() if line.startswith(("#!", "#SBATCH")) and not _OF_FOLDER.match(line)]
    head += [f"#SBATCH {flag}" for flag in flags if not flag.startswith("--container-workdir")]
    command = shlex.join(words)
    match launcher(text):
        case "torchrun":
            options = _TORCHRUN.search(text)
            program = [*_MEETS, f"torchrun{_with_workers(options[1] if options else '', text)} {command}"]
        case "srun" | "mpi" if words[0].rpartition("/")[2] not in ("mpirun", "mpiexec", "prterun"):
            program = [f"srun {command}"]
        case _:
            program = [command]
    return "\n".join([*head, *program, ""])


def lose_parts(reading: Reading, text: str, variables: Collection[str]) -> None:
    """Notes actions of such a script that pods do not carry out. `variables`: names that were given with the job."""
    for name in _ENVIRONMENT.findall(text):
        reading.lose(Place("", f"--environment {name}"), *LOST["environment"])
    for name in _STAGED.findall(text):
        reading.lose(Place("", f"--stage-in {name}"), *LOST["stage_in"])
    if _CHECKPOINTS not in variables:
        reading.lose(
            Place("", _CHECKPOINTS), "no pod has this variable", "mount a volume, and set the variable to its folder"
        )
    if _STEP.search(text):
        what = Place("", "inputs and outputs of the pipeline's step")
        reading.lose(what, "pods are in no pipeline", "write values for {STEP.OUTPUT} and HEADWAY_OUTPUT_*")


def _with_workers(options: str, text: str) -> str:
    """Returns torchrun's options with the number of its workers: one for each GPU, also of a job whose GPUs were simulated."""
    workers, gpus = _WORKERS.search(text), _GPUS.search(text)
    count = workers[1] if workers else "1"
    if workers and gpus and "SIMULATED" in workers[2]:
        count = gpus[1]
    return options.replace('"$HEADWAY_WORKERS"', count)
