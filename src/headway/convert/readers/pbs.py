"""Reads scripts of PBS Pro, OpenPBS and Torque (#PBS)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from headway.convert.job_description import Job, Place
from headway.convert.quantities import clock_seconds, memory_mib, slurm_memory, slurm_time, whole_number
from headway.convert.readers.scheduler_script import (
    Directives,
    array_range,
    log_file,
    mail_types,
    node_file,
    set_interpreter,
    set_script,
    take_apart,
)  # fmt: skip
from headway.convert.reading_state import Handler, Item, Reading, read_items
from headway.domain.slurm.other_schedulers import PBS_VARIABLES

_DIRECTIVES = Directives("#PBS", anywhere=False, flags=frozenset({"-V", "-h", "-I", "-X", "-z", "-f", "-x", "-G"}))
_WITH_VALUE = frozenset(f"-{letter}" for letter in "lNqoejmMAvWtJrSpadwukcPC")
_NAMES = re.compile(r"\b(?:PBS_\w+|NCPUS)\b")
_LOGS = {
    "$PBS_JOBNAME": "%x",
    "${PBS_JOBNAME}": "%x",
    "$USER": "%u",
    "${USER}": "%u",
    "$LOGNAME": "%u",
    "$PBS_JOBID": "%j",
    "${PBS_JOBID}": "%j",
    "^array_index^": "%a",
    "$PBS_ARRAYID": "%a",
}
_OPTIONS = {"-N": "job-name", "-d": "chdir", "-w": "chdir", "-M": "mail-user"}
_SAME = {
    "-V": "sbatch passes the environment on unless told otherwise",
    "-z": "sbatch prints one line",
    "-R": "Slurm removes no logs",
}
_LOST = {
    "-k": ("Slurm writes logs into their files at once", ""),
    "-I": ("a batch script has no terminal", "start an interactive job: headway shell, or salloc"),
    "-X": ("a batch script has no display", "start an interactive job: srun --x11"),
    "-c": ("Slurm writes no checkpoints of programs", "write checkpoints in the program"),
    "-C": ("the sign of directives is always #SBATCH", ""),
    "-u": ("a job belongs to the user who submits it", ""),
    "-P": ("a job belongs to the user who submits it", "name the account: --account"),
    "-f": ("Slurm has no jobs that tolerate failed nodes this way", "see --no-kill"),
    "-p": ("Slurm computes priorities", "lower your own with --nice, or ask for a QOS"),
    "-l place": ("Slurm places nodes by its own rules", "see --exclusive, --contiguous and --switches"),
    "-l cput": ("Slurm limits the time on the clock, not CPU time", "see --time"),
    "-l pcput": ("Slurm limits the time on the clock, not CPU time", "see --time"),
    "-l file": ("Slurm limits no file sizes", "see --tmp"),
    "-l nice": ("Slurm does not change the priority of processes", ""),
    "-W umask": ("sbatch takes the umask of the shell that submits", "set it in the script: umask"),
    "-W group_list": ("sbatch takes the group of the shell that submits", "see --gid"),
    "-W sandbox": ("Slurm starts the job in the folder of submission", "see --chdir"),
    "-W stagein": ("Slurm copies no files", "copy them in the script, or use a dataset"),
    "-W stageout": ("Slurm copies no files", "copy them in the script"),
    "-W depend": (
        "job numbers of the old scheduler mean nothing to Slurm",
        "submit with --dependency=afterok:JOB, with the number that sbatch prints",
    ),
    "-l software": ("names of licenses differ", "see --licenses"),
    "-l filesystems": ("nodes have their file systems", ""),
    "-G": ("this form of an interactive job is PBS's own", "start an interactive job: headway shell, or salloc"),
}  # fmt: skip
_MAILS = {"a": "FAIL", "b": "BEGIN", "e": "END", "n": "NONE", "j": "ALL", "f": "FAIL", "p": "NONE"}


def read_pbs(reading: Reading, text: str) -> Job:
    """Returns the job of a PBS script."""
    parts = take_apart(reading, text, _DIRECTIVES)
    chunks: list[Item] = []
    nodes: list[Item] = []

    def keep_chunks(_: Reading, item: Item) -> None:
        (nodes if item.name == "-l nodes" else chunks).append(item)
        reading.carry(item.place)

    handlers: dict[str, Handler] = {
        "-S": partial(set_interpreter, parts=parts),
        "-q": _partition, "-l queue": _partition, "-A": _account, "-j": _join, "-o": _log, "-e": _log, "-m": _mail,
        "-J": _array, "-t": _array, "-r": _requeue, "-v": _variables, "-h": _hold, "-a": _begin,
        "-W block": _wait, "-l walltime": _time, "-l select": keep_chunks, "-l nodes": keep_chunks, "-l mem": _memory,
        "-l vmem": _memory, "-l pmem": _memory_per_cpu, "-l pvmem": _memory_per_cpu, "-l ncpus": _cpus,
        "-l procs": _tasks, "-l ngpus": _gpus, "-l gpus": _gpus, "-l qos": _qos, "-l naccesspolicy": _exclusive,
        "-l place=excl": _exclusive, "-l feature": _features, "-W x": _maui, "-P": _project,
    }  # fmt: skip
    lost = {name: reason for name, reason in _LOST.items() if name != "-P"}
    items = [part for item in parts.items for part in _split(_separated(item))]
    read_items(reading, items, options=_OPTIONS, same=_SAME, lost=lost, handlers=handlers)
    if chunks:
        _chunks(reading, chunks[-1])
    for item in nodes[-1:]:
        _nodes(reading, item)
    for item in [*chunks[:-1], *nodes[:-1]]:
        reading.lose(item.place, "a later line requests nodes again")
    _starts_in_home(reading, text)
    if re.search(r"\bPBS_NODEFILE\b", "\n".join(line for _, line in parts.lines)):
        per_node = reading.job.number("ntasks-per-node") or 1
        reading.job.preamble += node_file("PBS_NODEFILE", per_node)
    set_script(reading, parts, {**PBS_VARIABLES, "NCPUS": "SLURM_CPUS_ON_NODE"}, _NAMES, ("PBS_NODEFILE",))
    return reading.job


def _starts_in_home(reading: Reading, text: str) -> None:
    """PBS starts scripts in the home folder, sbatch in the folder of submission."""
    if not re.search(r"cd\s+[\"']?\$\{?PBS_O_WORKDIR", text) and "chdir" not in reading.job.options:
        reading.job.preamble += [
            "# PBS starts jobs in the home folder, Slurm in the folder of submission.",
            'cd "$HOME"',
        ]


def _separated(item: Item) -> Item:
    """Returns the option -lwalltime=1:00:00 as -l with its value."""
    if len(item.name) > 2 and item.name[0] == "-" and item.name[:2] in _WITH_VALUE and not item.value:
        return Item(item.place, item.name[:2], item.name[2:])
    return item


def _split(item: Item) -> Iterator[Item]:
    """Yields the parts of -l and -W; other options whole."""
    if item.name not in ("-l", "-W") or not item.value:
        yield item
        return
    # A comma separates resources, and the values of one: nodes=a+b, depend=afterok:1,afterany:2.
    for part in re.split(r",(?=[A-Za-z_]+\s*=|[A-Za-z_]+$)", item.value):
        name, _, value = part.partition("=")
        name = name.strip()
        if item.name == "-l" and name == "place" and "excl" in value:
            name = "place=excl"
        place = Place(item.place.where, f"{item.name} {part}")
        yield Item(place, f"{item.name} {name}", value.strip())


def _partition(reading: Reading, item: Item) -> None:
    reading.set(item.place, "partition", item.value.partition("@")[0])
    reading.change(
        item.place, "the queue's name is taken as the partition's", "headway lint --on CLUSTER says if there is one"
    )


def _account(reading: Reading, item: Item) -> None:
    reading.set(item.place, "account", item.value)


def _project(reading: Reading, item: Item) -> None:
    reading.set(item.place, "account", item.value)
    reading.change(item.place, "the project's name is taken as the account's", "headway limits lists your accounts")


def _qos(reading: Reading, item: Item) -> None:
    reading.set(item.place, "qos", item.value)


def _join(reading: Reading, item: Item) -> None:
    if item.value in ("oe", "eo"):
        reading.same(item.place, "sbatch writes both outputs to one file unless --error names another")
        reading.job.options.pop("error", None)
    else:
        reading.change(
            item.place, "sbatch writes both outputs to one file unless --error names another", "name a file: --error"
        )


def _log(reading: Reading, item: Item) -> None:
    name = log_file(item.value, _LOGS)
    option = "output" if item.name == "-o" else "error"
    if name.endswith("/"):
        name += "%x.o%j" if item.name == "-o" else "%x.e%j"
    reading.set(item.place, option, name)


def _mail(reading: Reading, item: Item) -> None:
    reading.set(item.place, "mail-type", mail_types(item.value, _MAILS))


def _array(reading: Reading, item: Item) -> None:
    reading.set(item.place, "array", array_range(item.value))


def _requeue(reading: Reading, item: Item) -> None:
    if item.value not in ("y", "n"):
        raise ValueError("is neither y nor n")
    reading.set(item.place, "requeue" if item.value == "y" else "no-requeue")


def _variables(reading: Reading, item: Item) -> None:
    if not item.value:
        raise ValueError("names no variable")
    for part in re.split(r",(?=\w+(?:=|,|$))", item.value):
        name, equals, value = part.partition("=")
        if equals:
            reading.set_variable(item.place, name.strip(), value.strip("\"'"))
        else:
            reading.same(
                Place(item.place.where, f"-v {name}"), "sbatch passes the environment on unless told otherwise"
            )


def _hold(reading: Reading, item: Item) -> None:
    reading.set(item.place, "hold")


def _wait(reading: Reading, item: Item) -> None:
    reading.set(item.place, "wait") if item.value == "true" else reading.same(item.place, "sbatch does not wait")


def _begin(reading: Reading, item: Item) -> None:
    match = re.fullmatch(r"(?:(\d\d)?(\d\d)?(\d\d))?(\d\d)(\d\d)(?:\.(\d\d))?", item.value)
    if match is None or match[1] or match[2] or match[3]:
        raise ValueError("a begin with a date is not carried")
    reading.set(item.place, "begin", f"{match[4]}:{match[5]}")


def _time(reading: Reading, item: Item) -> None:
    reading.set(item.place, "time", slurm_time(clock_seconds(item.value.partition(".")[0])))


def _memory(reading: Reading, item: Item) -> None:
    mib = memory_mib(item.value)
    reading.set(item.place, "mem", slurm_memory(mib))
    reading.change(
        item.place, "PBS counts the memory of the whole job, Slurm that of each node", "divide --mem by the nodes"
    )


def _memory_per_cpu(reading: Reading, item: Item) -> None:
    reading.set(item.place, "mem-per-cpu", slurm_memory(memory_mib(item.value)))


def _cpus(reading: Reading, item: Item) -> None:
    reading.set(item.place, "cpus-per-task", str(whole_number(item.value)))


def _tasks(reading: Reading, item: Item) -> None:
    reading.set(item.place, "ntasks", str(whole_number(item.value)))


def _gpus(reading: Reading, item: Item) -> None:
    reading.set(item.place, "gpus-per-node", str(whole_number(item.value)))


def _exclusive(reading: Reading, item: Item) -> None:
    reading.set(item.place, "exclusive")
    if item.name == "-l place=excl" and item.value not in ("excl", "scatter:excl"):
        reading.change(item.place, "only excl of it is carried", "see --contiguous and --switches")


def _features(reading: Reading, item: Item) -> None:
    reading.set(item.place, "constraint", item.value.replace(":", "&"))


def _maui(reading: Reading, item: Item) -> None:
    reading.lose(
        item.place, "extensions of Maui and Moab are not carried", "look for their counterparts in sbatch's manual page"
    )


def _chunks(reading: Reading, item: Item) -> None:
    """Carries -l select: each chunk becomes a node. Of chunks that differ the largest amounts are taken."""
    total = 0
    most: dict[str, int] = {}
    chunks = item.value.split("+")
    for chunk in chunks:
        count, *resources = chunk.split(":")
        if not count.isdecimal():
            resources.insert(0, count)
            count = "1"
        total += int(count)
        for resource in resources:
            name, _, value = resource.partition("=")
            place = Place(item.place.where, f"select {resource}")
            if name in ("ncpus", "mpiprocs", "ngpus", "ompthreads") and value.isdecimal():
                most[name] = max(most.get(name, 0), int(value))
            elif name == "mem":
                try:
                    most[name] = max(most.get(name, 0), memory_mib(value))
                except ValueError as error:
                    reading.lose(place, str(error))
            elif name in ("host", "vnode"):
                reading.set(place, "nodelist", value)
            elif name in ("model", "cpu_type", "gpu_type", "gputype", "accelerator_model", "gpu_model"):
                reading.set(place, "constraint", value)
                reading.change(
                    place, "the name is taken as a feature of nodes", "headway lint --on CLUSTER says if there is one"
                )
            else:
                reading.lose(place, "Slurm has no such resource", "see --constraint and --gres")
    if total < 1:
        reading.lose(item.place, "requests no chunk")
        return
    set_nodes(reading, item.place, total)
    tasks = most.get("mpiprocs") or 1
    cpus = max(1, most.get("ncpus", 1) // tasks)
    reading.set(item.place, "ntasks-per-node", str(tasks))
    reading.set(item.place, "cpus-per-task", str(cpus))
    if most.get("ngpus"):
        reading.set(item.place, "gpus-per-node", str(most["ngpus"]))
    if "mem" in most:
        reading.set(item.place, "mem", slurm_memory(most["mem"]))
    if most.get("ompthreads"):
        reading.job.environment["OMP_NUM_THREADS"] = str(most["ompthreads"])
    if len(chunks) > 1:
        reading.change(
            item.place,
            "chunks that differ become equal nodes with the largest amounts",
            "see heterogeneous jobs of sbatch",
        )
    elif total > 1:
        reading.change(item.place, "each chunk becomes a node; PBS may place several on one", "")


def _nodes(reading: Reading, item: Item) -> None:
    """Carries Torque's -l nodes=2:ppn=8:gpus=4+...: the largest amounts are taken."""
    total, named, most = 0, list[str](), dict[str, int]()
    groups = item.value.split("+")
    for group in groups:
        first, *properties = group.split(":")
        if first.isdecimal():
            total += int(first)
        else:
            total, named = total + 1, [*named, first]
        for one in properties:
            name, equals, value = one.partition("=")
            place = Place(item.place.where, f"nodes {one}")
            if name in ("ppn", "gpus", "ncpus") and value.isdecimal():
                most[name] = max(most.get(name, 0), int(value))
            elif not equals and name not in ("shared", "exclusive_process", "exclusive", "default", "reseterr"):
                features = reading.job.options.get("constraint", "")
                if name not in features.split("&"):
                    reading.job.options["constraint"] = "&".join(filter(None, [features, name]))
                    reading.job.places["constraint"] = place
                reading.change(
                    place,
                    "the property is taken as a feature of nodes",
                    "headway lint --on CLUSTER says if there is one",
                )
            else:
                reading.lose(place, "Slurm has no such property of nodes", "see --constraint and --gres")
    if total < 1:
        reading.lose(item.place, "requests no node")
        return
    set_nodes(reading, item.place, total)
    reading.set(item.place, "ntasks-per-node", str(most.get("ppn") or most.get("ncpus") or 1))
    if most.get("gpus"):
        reading.set(item.place, "gpus-per-node", str(most["gpus"]))
    if named:
        reading.set(item.place, "nodelist", ",".join(named))
        reading.change(
            item.place, "names of machines are taken over", "remove --nodelist if the new machines have other names"
        )
    if len(groups) > len(named) and len(groups) > 1:
        reading.change(
            item.place,
            "parts that differ become equal nodes with the largest amounts",
            "see heterogeneous jobs of sbatch",
        )


def set_nodes(reading: Reading, place: Place, count: int) -> None:
    """Carries a number of nodes."""
    reading.set(place, "nodes", str(count))
