"""Reads scripts of LSF (#BSUB)."""

from __future__ import annotations

import re
from functools import partial

from headway.convert.job_description import Job, Place
from headway.convert.quantities import clock_seconds, memory_mib, slurm_memory, slurm_time, whole_number
from headway.convert.readers.scheduler_script import (
    Directives,
    array_range,
    log_file,
    node_file,
    set_interpreter,
    set_script,
    take_apart,
)
from headway.convert.reading_state import Handler, Item, Reading, read_items
from headway.domain.slurm.other_schedulers import LSF_VARIABLES

_FLAGS = [
    "-B",
    "-N",
    "-Ne",
    "-x",
    "-H",
    "-r",
    "-rn",
    "-K",
    "-I",
    "-Ip",
    "-Is",
    "-IS",
    "-ISp",
    "-ISs",
    "-IX",
    "-XF",
    "-ar",
    "-ul",
]
_DIRECTIVES = Directives("#BSUB", anywhere=True, flags=frozenset(_FLAGS))
_NAMES = re.compile(r"\b(?:LSB_\w+|LSF_\w+|LS_\w+)\b")
_LOGS = {"%J": "%j", "%I": "%a", "%%": "%%"}
_OPTIONS = {
    "-P": "account",
    "-u": "mail-user",
    "-cwd": "chdir",
    "-i": "input",
    "-is": "input",
    "-U": "reservation",
    "-nnodes": "nodes",
}
_SAME = {
    "-r": "Slurm runs a job again when its node fails, unless --no-requeue says otherwise",
    "-ul": "sbatch passes the limits of the shell on",
}
_INTERACTIVE = ("a batch script has no terminal", "start an interactive job: headway shell, or salloc")
_NO_COUNTERPART = ("Slurm has no counterpart", "")
_LOST = {
    **dict.fromkeys(("-I", "-Ip", "-Is", "-IS", "-ISp", "-ISs", "-IX", "-XF"), _INTERACTIVE),
    "-w": (
        "job numbers of the old scheduler mean nothing to Slurm",
        "submit with --dependency=afterok:JOB, with the number that sbatch prints",
    ),
    "-ti": ("it belongs to -w", ""),
    "-G": ("groups of users are accounts in Slurm", "name the account: --account"),
    "-app": ("Slurm has no application profiles", "write out what the profile sets"),
    "-a": ("Slurm has no application profiles of this kind", "start MPI programs with srun"),
    "-sla": ("Slurm has no service classes", "ask for a QOS: --qos"),
    "-sp": ("Slurm computes priorities", "lower your own with --nice, or ask for a QOS"),
    "-E": ("a user's command before the job is not run by Slurm", "make it the first line of the script"),
    "-Ep": ("a user's command after the job is not run by Slurm", "run it by trap ... EXIT in the script"),
    "-f": ("Slurm copies no files", "copy them in the script, or use a dataset"),
    "-v": ("Slurm limits no swap", ""),
    "-c": ("Slurm limits the time on the clock, not CPU time", "see --time"),
    "-T": ("Slurm limits no threads", ""),
    "-p": ("Slurm limits no processes", ""),
    "-D": ("Slurm takes this limit from the shell that submits", "set it in the script: ulimit"),
    "-F": ("Slurm takes this limit from the shell that submits", "set it in the script: ulimit"),
    "-S": ("Slurm takes this limit from the shell that submits", "set it in the script: ulimit"),
    "-C": ("Slurm takes this limit from the shell that submits", "set it in the script: ulimit"),
    "-k": ("Slurm writes no checkpoints of programs", "write checkpoints in the program"),
    "-t": ("Slurm has no time after which a job is ended", "see --deadline and --time"),
    "-We": ("Slurm has no estimate of the time", "see --time-min"),
    "-g": ("Slurm has no groups of jobs", "give jobs of a kind one --job-name or --wckey"),
    "-Jd": ("it is a description", "see --comment"),
    "-env": ("its forms are not carried", "see --export"),
    "-Q": _NO_COUNTERPART,
    "-ar": _NO_COUNTERPART,
    "-hl": ("Slurm enforces memory on each node", ""),
    "-network": _NO_COUNTERPART,
    "-R rusage": ("Slurm has no such consumable resource", "see --gres and --licenses"),
    "-R select": ("Slurm selects nodes by features, not by expressions", "see --constraint"),
    "-R order": ("Slurm orders nodes by its own rules", ""),
    "-R affinity": ("its expressions are not carried", "see --cpu-bind of srun"),
    "-R same": ("its expressions are not carried", "see --constraint"),
    "-R cu": ("its expressions are not carried", "see --switches"),
    "-R span": ("this form of span is not carried", "see --nodes and --ntasks-per-node"),
}  # fmt: skip


def read_lsf(reading: Reading, text: str) -> Job:
    """Returns the job of an LSF script."""
    parts = take_apart(reading, text, _DIRECTIVES)
    items = [part for item in parts.items for part in _split(item)]
    handlers: dict[str, Handler] = {
        "-L": partial(set_interpreter, parts=parts),
        "-J": _name, "-q": _partition, "-n": _tasks, "-W": _time, "-o": _log, "-e": _log, "-oo": _log, "-eo": _log,
        "-M": _memory_limit, "-gpu": _gpus, "-x": _flag, "-H": _flag, "-K": _flag, "-rn": _flag, "-B": _mail, "-N": _mail,
        "-Ne": _mail, "-b": _begin, "-m": _hosts, "-R mem": _memory, "-R ngpus": _resource_gpus, "-R ptile": _ptile,
        "-R hosts": _one_host, "-R ngpus_physical": _resource_gpus, "-R ngpus_shared": _resource_gpus,
    }  # fmt: skip
    read_items(reading, items, options=_OPTIONS, same=_SAME, lost=_LOST, handlers=handlers)
    _spread(reading)
    body = "\n".join(line for _, line in parts.lines)
    if re.search(r"\bLSB_HOSTS\b", body):
        reading.job.preamble.append('export LSB_HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr "\\n" " ")')
    if re.search(r"\bLSB_DJOB_HOSTFILE\b", body):
        reading.job.preamble += node_file("LSB_DJOB_HOSTFILE", reading.job.number("ntasks-per-node") or 1)
    set_script(reading, parts, LSF_VARIABLES, _NAMES, ("LSB_HOSTS", "LSB_DJOB_HOSTFILE"))
    return reading.job


def _split(item: Item) -> list[Item]:
    """Returns the parts of -R, and other options whole."""
    if item.name != "-R":
        return [item]
    found: list[Item] = []
    sections = re.findall(r"(\w+)\[([^\]]*)\]", item.value)
    if not sections:
        return [Item(item.place, "-R select", item.value)]
    rest = re.sub(r"\w+\[[^\]]*\]", "", item.value).strip(" &")
    if rest:
        found.append(Item(Place(item.place.where, f"-R {rest}"), "-R select", rest))
    for section, text in sections:
        for part in re.split(r"[:,]", text) if section in ("rusage", "span") else [text]:
            name, _, value = part.partition("=")
            name, place = name.strip(), Place(item.place.where, f"-R {section}[{part}]")
            known = section == "rusage" and name in ("mem", "ngpus_physical", "ngpus_shared", "ngpus")
            known = known or (section == "span" and name in ("ptile", "hosts"))
            found.append(Item(place, f"-R {name if known else section}", value.strip()))
    return found


def _name(reading: Reading, item: Item) -> None:
    match = re.fullmatch(r"([^\[\]]*)(?:\[([^\]]*)\](%\d+)?)?", item.value)
    if match is None:
        raise ValueError("is no name of a job")
    if match[1]:
        reading.set(item.place, "job-name", match[1])
    if match[2]:
        reading.set(item.place, "array", array_range(f"{match[2]}{match[3] or ''}"))


def _partition(reading: Reading, item: Item) -> None:
    reading.set(item.place, "partition", ",".join(item.value.split()))
    reading.change(
        item.place, "the queue's name is taken as the partition's", "headway lint --on CLUSTER says if there is one"
    )


def _tasks(reading: Reading, item: Item) -> None:
    least, comma, _ = item.value.partition(",")
    reading.set(item.place, "ntasks", str(whole_number(least)))
    if comma:
        reading.change(item.place, "Slurm gives a fixed number of tasks: the least one", "")


def _time(reading: Reading, item: Item) -> None:
    limit, slash, _ = item.value.partition("/")
    reading.set(item.place, "time", slurm_time(clock_seconds(limit, unit_s=60)))
    if slash:
        reading.change(item.place, "the time does not depend on a machine's speed", "")


def _log(reading: Reading, item: Item) -> None:
    reading.set(item.place, "output" if item.name in ("-o", "-oo") else "error", log_file(item.value, _LOGS))
    if item.name in ("-oo", "-eo"):
        reading.set(item.place, "open-mode", "truncate")


_UNIT = "the unit of a bare number is the site's setting in LSF; taken are"
_LEAST_MB = 1000  # a smaller number is taken as GB: no job means so few MB


def _memory_of(text: str) -> tuple[str, str]:
    """Returns the amount for sbatch, and a sentence about its unit if the text has none."""
    if not text.isdecimal():
        return slurm_memory(memory_mib(text)), ""
    unit = "M" if int(text) >= _LEAST_MB else "G"
    return slurm_memory(memory_mib(text, default_unit=unit)), f"; {_UNIT} {unit}B"


def _memory(reading: Reading, item: Item) -> None:
    value = item.value.partition("/")[0]
    amount, unit = _memory_of(value)
    reading.set(item.place, "mem", amount)
    reading.change(
        item.place, f"it is taken as memory of each node{unit}", "use --mem-per-cpu if the site counts by slot"
    )


def _memory_limit(reading: Reading, item: Item) -> None:
    value = item.value.removesuffix("!")
    if "mem" in reading.job.options:
        reading.lose(item.place, "the reservation in -R rusage[mem] counts, and Slurm enforces it", "")
        return
    reading.set(item.place, "mem", _memory_of(value)[0])
    reading.change(item.place, f"Slurm reserves the memory, too{_memory_of(value)[1]}", "check --mem")


def _gpus(reading: Reading, item: Item) -> None:
    for part in item.value.split(":"):
        name, _, value = part.partition("=")
        place = Place(item.place.where, f"-gpu {part}")
        if name == "num":
            reading.set(place, "gpus-per-node", str(whole_number(value.partition("/")[0])))
        elif name == "gmodel":
            reading.lose(place, "types of GPUs have other names", "see --gpus-per-node=TYPE:COUNT")
        elif (name, value) in (("mode", "exclusive_process"), ("j_exclusive", "yes"), ("mps", "no")):
            reading.same(place, "a GPU belongs to one job")
        elif name == "-":
            reading.set(place, "gpus-per-node", "1")
        else:
            reading.lose(place, "Slurm has no such setting of GPUs", "")


def _resource_gpus(reading: Reading, item: Item) -> None:
    reading.set(item.place, "gpus-per-node", str(whole_number(item.value)))


def _ptile(reading: Reading, item: Item) -> None:
    reading.set(item.place, "ntasks-per-node", str(whole_number(item.value)))


def _one_host(reading: Reading, item: Item) -> None:
    if item.value == "1":
        reading.set(item.place, "nodes", "1")
    else:
        raise ValueError("this form of span is not carried")


def _spread(reading: Reading) -> None:
    """Sets the number of nodes that -n and span[ptile] mean together, and one node for GPUs without it."""
    tasks, per_node = reading.job.number("ntasks"), reading.job.number("ntasks-per-node")
    if tasks and per_node and "nodes" not in reading.job.options:
        reading.job.options["nodes"] = str(-(-tasks // per_node))


def _flag(reading: Reading, item: Item) -> None:
    reading.set(item.place, {"-x": "exclusive", "-H": "hold", "-K": "wait", "-rn": "no-requeue"}[item.name])


def _mail(reading: Reading, item: Item) -> None:
    before = reading.job.options.get("mail-type", "")
    kind = {"-B": "BEGIN", "-N": "END", "-Ne": "FAIL"}[item.name]
    reading.job.options["mail-type"] = ",".join(filter(None, [before, kind]))
    reading.carry(item.place)


def _begin(reading: Reading, item: Item) -> None:
    match = re.fullmatch(r"(\d{1,2}):(\d\d)", item.value)
    if match is None:
        raise ValueError("a begin with a date is not carried")
    reading.set(item.place, "begin", f"{match[1]:0>2}:{match[2]}")


def _hosts(reading: Reading, item: Item) -> None:
    reading.set(item.place, "nodelist", ",".join(item.value.split()))
    reading.change(
        item.place, "LSF takes some of these machines, Slurm all of them", "remove --nodelist, or see --constraint"
    )
