"""Reads scripts of Grid Engine: SGE, UGE, Altair Grid Engine, OGS (#$)."""

from __future__ import annotations

import re
from functools import partial

from headway.convert.job_description import Job, Place
from headway.convert.quantities import clock_seconds, memory_mib, slurm_memory, slurm_time, whole_number
from headway.convert.readers.scheduler_script import (
    Directives,
    array_range,
    log_file,
    mail_types,
    set_interpreter,
    set_script,
    take_apart,
)  # fmt: skip
from headway.convert.reading_state import Handler, Item, Reading, read_items
from headway.domain.slurm.other_schedulers import SGE_VARIABLES

_FLAGS = ["-cwd", "-V", "-h", "-notify", "-soft", "-hard", "-verify", "-terse", "-clear", "-help", "-nobinding"]
_DIRECTIVES = Directives("#$", anywhere=True, flags=frozenset(_FLAGS), pairs=frozenset({"-pe"}))
# Names of Grid Engine that other programs use, too; the script is one of Grid Engine.
_VARIABLES = {
    **SGE_VARIABLES, "JOB_ID": "SLURM_JOB_ID", "JOB_NAME": "SLURM_JOB_NAME", "NHOSTS": "SLURM_JOB_NUM_NODES",
    "QUEUE": "SLURM_JOB_PARTITION", "TASK_ID": "SLURM_ARRAY_TASK_ID",
}  # fmt: skip
_NAMES = re.compile(r"\b(?:SGE_\w+|NSLOTS|NHOSTS|NQUEUES|PE_HOSTFILE|JOB_SCRIPT|\$\{?(?:JOB_ID|JOB_NAME|QUEUE|PE))\b")
_LOGS = {
    "$JOB_ID": "%j", "${JOB_ID}": "%j", "$TASK_ID": "%a", "${TASK_ID}": "%a", "$SGE_TASK_ID": "%a",
    "$JOB_NAME": "%x", "${JOB_NAME}": "%x", "$USER": "%u", "${USER}": "%u", "$HOSTNAME": "%N", "${HOSTNAME}": "%N",
}  # fmt: skip
_OPTIONS = {"-N": "job-name", "-wd": "chdir", "-M": "mail-user", "-A": "account", "-i": "input"}
_SAME = {
    "-V": "sbatch passes the environment on unless told otherwise",
    "-cwd": "sbatch starts the job in the folder of submission",
    "-b": "sbatch takes scripts",
    "-R": "Slurm's backfill reserves nodes for waiting jobs",
    "-terse": "sbatch prints one line",
    "-hard": "requests of sbatch are always hard",
    "-w": "sbatch refuses a job that can never start",
    "-shell": "sbatch starts the program of the first line",
    "-now": "a batch job waits in the queue",
}
_LOST = {
    "-hold_jid": (
        "job numbers and names of the old scheduler mean nothing to Slurm",
        "submit with --dependency=afterany:JOB, with the number that sbatch prints, or --dependency=singleton",
    ),
    "-hold_jid_ad": ("jobs of the old scheduler mean nothing to Slurm", "see --dependency=aftercorr:JOB"),
    "-p": ("Slurm computes priorities", "lower your own with --nice, or ask for a QOS"),
    "-js": ("Slurm has no shares between jobs of a user", "see --nice"),
    "-soft": ("Slurm has no soft requests; those after it become hard", "see --prefer"),
    "-ac": ("Slurm has no context of jobs", "see --comment"),
    "-binding": ("its forms are not carried", "see --cpu-bind of srun"),
    "-ckpt": ("Slurm writes no checkpoints of programs", "write checkpoints in the program"),
    "-masterq": ("Slurm has no queue for the first task", ""),
    "-pty": ("a batch script has no terminal", "start an interactive job: headway shell, or salloc"),
    "-dl": ("its form is not carried", "see --deadline"),
    "-C": ("the sign of directives is always #SBATCH", ""),
    "-jc": ("Slurm has no job classes", "write out what the class sets"),
    "-l s_vmem": ("Slurm has no soft limit of memory", "see --mem-per-cpu"),
    "-l s_cpu": ("Slurm limits the time on the clock, not CPU time", "see --time"),
    "-l h_cpu": ("Slurm limits the time on the clock, not CPU time", "see --time"),
    "-l h_fsize": ("Slurm limits no file sizes", "see --tmp"),
    "-l h_stack": ("Slurm takes this limit from the shell that submits", "set it in the script: ulimit"),
    "-l arch": ("nodes of a cluster have features", "see --constraint"),
    "-notify": ("its signals are not sent", "see --signal, which sends one before the time limit"),
}  # fmt: skip
_MAILS = {"b": "BEGIN", "e": "END", "a": "FAIL", "s": "REQUEUE", "n": "NONE"}
_SHARED_MEMORY = re.compile(
    r"smp|openmp|omp|shared|threaded|thread|make|multi|parallel$|onenode|single|serial", re.IGNORECASE
)


def read_sge(reading: Reading, text: str) -> Job:
    """Returns the job of a Grid Engine script."""
    parts = take_apart(reading, text, _DIRECTIVES)
    items = [part for item in parts.items for part in _split(item)]
    gpus = dict.fromkeys(("-l gpu", "-l gpus", "-l ngpus", "-l cuda", "-l gpu_card", "-l GPU"), _gpus)
    memory = dict.fromkeys(
        (
            "-l h_vmem",
            "-l mem_free",
            "-l virtual_free",
            "-l m_mem_free",
            "-l vf",
            "-l mem",
            "-l h_rss",
            "-l mem_requested",
        ),
        _memory,
    )
    handlers: dict[str, Handler] = {
        "-S": partial(set_interpreter, parts=parts),
        "-q": _partition, "-P": _project, "-o": _log, "-e": _log, "-j": _join, "-pe": _environment, "-t": _array,
        "-tc": _tasks_at_once, "-m": _mail, "-r": _requeue, "-h": _hold, "-a": _begin, "-v": _variables, "-sync": _sync,
        "-l h_rt": _time, "-l s_rt": _soft_time, "-l hostname": _host, "-l h": _host, "-l exclusive": _exclusive,
        "-l excl": _exclusive, "-l exclusive_node": _exclusive, **gpus, **memory,
    }  # fmt: skip
    read_items(reading, items, options=_OPTIONS, same=_SAME, lost=_LOST, handlers=handlers)
    names = {item.name for item in items}
    if not names & {"-cwd", "-wd"}:
        reading.job.preamble += [
            "# Grid Engine starts jobs in the home folder, Slurm in the folder of submission.", 'cd "$HOME"',
        ]  # fmt: skip
    if "-e" not in names and "-j" not in names:
        reading.change(
            Place("line 1", ""), "Grid Engine writes two logs, NAME.oJOB and NAME.eJOB; sbatch one", "see --error"
        )
    slots = "SLURM_CPUS_PER_TASK" if "cpus-per-task" in reading.job.options else "SLURM_NTASKS"
    if re.search(r"\bPE_HOSTFILE\b", text):
        reading.job.preamble += [
            "# A file with a line for each node, as Grid Engine writes it.",
            "export PE_HOSTFILE=$(mktemp)",
            'scontrol show hostnames "$SLURM_JOB_NODELIST" |'
            ' awk -v slots="${SLURM_TASKS_PER_NODE%%[^0-9]*}" \'{print $1, slots, "all.q", "UNDEFINED"}\' >"$PE_HOSTFILE"',
        ]
    set_script(reading, parts, {**_VARIABLES, "NSLOTS": slots}, _NAMES, ("PE_HOSTFILE",))
    return reading.job


def _split(item: Item) -> list[Item]:
    """Returns the parts of -l, and other options whole. -pe has two words as its value."""
    if item.name != "-l":
        return [item]
    found: list[Item] = []
    for part in item.value.split(","):
        name, _, value = part.partition("=")
        found.append(Item(Place(item.place.where, f"-l {part}"), f"-l {name.strip()}", value.strip() or "1"))
    return found


def _partition(reading: Reading, item: Item) -> None:
    queues = [queue.partition("@")[0] for queue in item.value.split(",")]
    reading.set(item.place, "partition", ",".join(dict.fromkeys(queues)))
    reading.change(
        item.place, "the queue's name is taken as the partition's", "headway lint --on CLUSTER says if there is one"
    )


def _project(reading: Reading, item: Item) -> None:
    reading.set(item.place, "account", item.value)
    reading.change(item.place, "the project's name is taken as the account's", "headway limits lists your accounts")


def _log(reading: Reading, item: Item) -> None:
    name = log_file(item.value, _LOGS)
    letter = item.name[1]
    if name.endswith("/") or name in (".", ".."):
        name = f"{name.rstrip('/')}/%x.{letter}%j"
    elif "." not in name.rpartition("/")[2] and "%" not in name:
        reading.change(
            item.place,
            "if it is a folder, Grid Engine writes NAME.oJOB there; it is taken as a file",
            "check the log's name",
        )
    reading.set(item.place, "output" if letter == "o" else "error", name)


def _join(reading: Reading, item: Item) -> None:
    if item.value in ("y", "yes", "Y"):
        reading.same(item.place, "sbatch writes both outputs to one file unless --error names another")
    else:
        reading.change(
            item.place, "sbatch writes both outputs to one file unless --error names another", "name a file: --error"
        )


def _environment(reading: Reading, item: Item) -> None:
    """Carries -pe NAME SLOTS. Environments of one machine become CPUs of one task, others tasks."""
    name, _, slots = item.value.partition(" ")
    count, dash, _ = slots.strip().partition("-")
    number = str(whole_number(count))
    if _SHARED_MEMORY.search(name):
        reading.set(item.place, "nodes", "1")
        reading.set(item.place, "cpus-per-task", number)
        reading.change(
            item.place,
            f"{name} is taken as an environment of one machine: CPUs of one task",
            "see --ntasks if it is not",
        )
    else:
        reading.set(item.place, "ntasks", number)
        reading.change(
            item.place,
            f"{name} is taken as an environment of several machines: tasks",
            "see --cpus-per-task if it is not",
        )
    if dash:
        reading.change(Place(item.place.where, f"{slots.strip()} slots"), "Slurm gives a fixed number: the least one")


def _array(reading: Reading, item: Item) -> None:
    value = array_range(item.value)
    value = f"1-{value}" if value.isdecimal() and value != "1" else value
    limit = reading.job.options.get("array", "")
    reading.set(item.place, "array", value + (limit if limit.startswith("%") else ""))


def _tasks_at_once(reading: Reading, item: Item) -> None:
    number = whole_number(item.value)
    before = reading.job.options.get("array", "")
    reading.job.options["array"] = f"{before}%{number}"
    reading.job.places.setdefault("array", item.place)
    reading.carry(item.place)


def _mail(reading: Reading, item: Item) -> None:
    reading.set(item.place, "mail-type", mail_types(item.value.replace(",", ""), _MAILS))


def _requeue(reading: Reading, item: Item) -> None:
    if item.value not in ("y", "yes", "n", "no"):
        raise ValueError("is neither y nor n")
    reading.set(item.place, "requeue" if item.value in ("y", "yes") else "no-requeue")


def _hold(reading: Reading, item: Item) -> None:
    reading.set(item.place, "hold")


def _sync(reading: Reading, item: Item) -> None:
    reading.set(item.place, "wait") if item.value in ("y", "yes") else reading.same(item.place, "sbatch does not wait")


def _begin(reading: Reading, item: Item) -> None:
    match = re.fullmatch(r"(\d\d)(\d\d)(?:\.\d\d)?", item.value)
    if match is None:
        raise ValueError("a begin with a date is not carried")
    reading.set(item.place, "begin", f"{match[1]}:{match[2]}")


def _variables(reading: Reading, item: Item) -> None:
    if not item.value:
        raise ValueError("names no variable")
    for part in re.split(r",(?=\w+(?:=|,|$))", item.value):
        name, equals, value = part.partition("=")
        if equals:
            reading.set_variable(item.place, name.strip(), value)
        else:
            reading.same(
                Place(item.place.where, f"-v {name}"), "sbatch passes the environment on unless told otherwise"
            )


def _time(reading: Reading, item: Item) -> None:
    reading.set(item.place, "time", slurm_time(clock_seconds(item.value)))


def _soft_time(reading: Reading, item: Item) -> None:
    reading.lose(
        item.place, "Slurm sends no signal at a soft limit", "see --signal, which sends one before the time limit"
    )


def _memory(reading: Reading, item: Item) -> None:
    reading.set(item.place, "mem-per-cpu", slurm_memory(memory_mib(item.value)))
    if item.name not in ("-l h_vmem", "-l h_rss"):
        reading.change(item.place, "Grid Engine looks for free memory, Slurm reserves and enforces it", "")


def _gpus(reading: Reading, item: Item) -> None:
    reading.set(item.place, "gpus-per-node", str(whole_number(item.value)))


def _host(reading: Reading, item: Item) -> None:
    if re.search(r"[*|!&()]", item.value):
        raise ValueError("patterns of machines are not carried")
    reading.set(item.place, "nodelist", item.value)


def _exclusive(reading: Reading, item: Item) -> None:
    reading.set(item.place, "exclusive")
