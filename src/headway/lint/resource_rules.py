"""Rules about what a job requests: GPUs or memory named twice, tasks that do not fit the launcher, no time limit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headway.lint.batch_text import BatchText, Command, launch_arguments, launched_program, option_value
from headway.lint.findings import Finding, delete_line, replace_line

# Programs that start one process per GPU of a node by themselves.
PER_NODE_LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "colossalai")
_GPU_OPTIONS = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
_GRES_GPU = re.compile(r"gpu(?::(?!\d+$)[^:,]+)?(?::(\d+))?")
_LAST_NUMBER = re.compile(r"(?:[^:,]+:)?(\d+)")
# Text of a script that starts its tasks, or several processes, in some way.
_STARTER = re.compile(
    r"srun|mpirun|mpiexec|ibrun|aprun|prun|prterun|flux|charmrun|parallel|xargs|dask|\bray\b|SLURM_(?:NTASKS|NPROCS|TASKS_PER_NODE)",
    re.IGNORECASE,
)
_FUNCTION = re.compile(r"^\s*(?:function\s+)?([\w-]+)\s*\(\s*\)", re.MULTILINE)
# Shell builtins and small programs that prepare a job: a script of only these has no tasks to start.
PREPARES = frozenset(
    {"", "cd", "echo", "export", "module", "source", ".", "set", "mkdir", "date", "hostname", "ulimit", "trap", "sleep",
     "wait", "exit", "true", "cat", "ls", "cp", "rm", "conda", "test", "[", "[[", "printf", "unset", "ml", "awk", "sed", "grep",
     "dirname", "basename", "readlink", "realpath", "scontrol", "squeue", "nvidia-smi", "which", "tar", "unzip", "rsync", "ln",
     "mv", "chmod", "find", "wc", "head", "tail", "tee", "tr", "cut", "sort", "seq", "pwd", "let", "read", "local", "return",
     ":", "shift", "break", "continue", "touch", "declare", "readonly", "type", "pip", "git", "wget", "curl", "make", "cmake",
     "gcc", "g++", "mpicc", "mpicxx", "mpif90", "nvcc", "spack", "deactivate", "uname", "lscpu", "free", "df", "du", "env",
     "shopt", "alias", "false", "kill", "ps", "sync", "stat", "diff", "uniq", "bc", "expr", "id", "whoami"}
)  # fmt: skip


def resource_rules(text: BatchText) -> Iterator[Finding]:
    """Yields the findings about nodes, tasks, GPUs, memory and time."""
    yield from _gpus_twice(text)
    yield from _memory_twice(text)
    yield from _gpus_of_tasks(text)
    yield from _tasks_of_launchers(text)
    yield from _tasks_without_srun(text)
    yield from _processes_per_node(text)
    if text.directives and text.value("time") is None:
        yield Finding(
            "no-time", "note", text.last_directive, "The script sets no --time.",
            "The job gets the partition's limit. With a time limit Slurm can start it in a gap before larger jobs.",
        )  # fmt: skip


def _memory_twice(text: BatchText) -> Iterator[Finding]:
    given = [name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if name in text.options]
    if len(given) > 1:
        yield Finding(
            "memory-twice", "error", text.line_of(given[-1]), f"Memory is requested by --{given[0]} and by --{given[1]}.",
            "sbatch refuses the script: a job takes one of them.",
        )  # fmt: skip


def gpus_per_node(text: BatchText) -> int | None:
    """Returns the GPUs that the script requests on each node, None where it does not say."""
    for name in ("gpus-per-node", "gres"):
        value = text.value(name)
        if value is None:
            continue
        if name == "gres":
            found = next((match for word in value.split(",") if (match := _GRES_GPU.fullmatch(word))), None)
            return int(found[1] or 1) if found else None
        number = _LAST_NUMBER.fullmatch(value)
        return int(number[1]) if number else None
    total = _LAST_NUMBER.fullmatch(text.value("gpus") or "")
    if total and (text.value("nodes") in (None, "1")):
        return int(total[1])
    return None


def node_count(text: BatchText) -> int | None:
    """Returns the number of nodes that --nodes gives; None without it, or for a range."""
    value = text.value("nodes") or ""
    return int(value) if value.isdigit() and len(value) < 7 else None


def _gpus_twice(text: BatchText) -> Iterator[Finding]:
    gres = text.value("gres") or ""
    found = next((match for word in gres.split(",") if (match := _GRES_GPU.fullmatch(word))), None)
    other = next((name for name in _GPU_OPTIONS if name in text.options), None)
    if found is None or other is None or (other == "gpus-per-node" and text.value(other) in (found[1], gres[4:])):
        return
    line = text.line_of("gres")
    # Only a line with this one option can be removed as a whole.
    alone = next((one for one in text.directives if one.line == line and len(one.options) == 1), None)
    yield Finding(
        "gres-and-gpus", "warning", line, f"GPUs are requested twice: by --gres={gres} and by --{other}.",
        "Slurm adds the conditions up, and refuses the job, or lets it wait for ever, if they do not agree.",
        delete_line(line)
        if alone and text.has_line("gres") and gres.startswith("gpu") and "," not in gres and other != "gpus-per-node"
        else (),
    )  # fmt: skip


def _gpus_of_tasks(text: BatchText) -> Iterator[Finding]:
    """Yields a finding for --gpus-per-task that contradicts the tasks and GPUs of a node, or of the job."""
    each, nodes = _last_number(text, "gpus-per-task"), node_count(text)
    on_each, tasks = _last_number(text, "ntasks-per-node"), _last_number(text, "ntasks")
    of_node = on_each or (tasks if nodes == 1 else None)
    of_job = tasks or (on_each * nodes if on_each and nodes else None)
    for option, count, place in (("gpus-per-node", of_node, " of a node"), ("gpus", of_job, "")):
        given = _last_number(text, option)
        if not each or not count or given is None or given == count * each:
            continue
        few = given < count * each
        yield Finding(
            "tasks-times-gpus", "warning", text.line_of("gpus-per-task"),
            f"{count} task{'s' * (count != 1)}{place} with {each} GPU{'s' * (each != 1)} each need {count * each}, "
            f"not --{option}={text.value(option)}.",
            ("Slurm refuses the job, or it waits for ever" if few else "Slurm refuses the job, or GPUs stay idle")
            + ". --gpus-per-task is the number of one task: give it, or the GPUs of the node, and let the tasks divide them.",
        )  # fmt: skip
        return


def _last_number(text: BatchText, option: str) -> int | None:
    """Returns the number of an option such as --gpus=h100:8; None without one."""
    found = _LAST_NUMBER.fullmatch(text.value(option) or "")
    return int(found[1]) if found and len(found[1]) < 7 else None


def _tasks_of_launchers(text: BatchText) -> Iterator[Finding]:
    """Yields a finding for a launcher that srun starts several times on a node, although it starts a process for each GPU
    itself."""
    on_each = text.value("ntasks-per-node") or ""
    if not on_each.isdigit() or int(on_each) < 2:
        return
    for command in text.running(*PER_NODE_LAUNCHERS):
        if command.name != "srun" or option_value(command.arguments, "--ntasks-per-node", "--ntasks", "-n") is not None:
            continue
        launcher, line = launched_program(command), text.line_of("ntasks-per-node")
        if option_value(launch_arguments(command, launcher), "--nproc-per-node") == "1":
            continue  # one process for each task
        fixed = re.sub(r"(--ntasks-per-node[= ])\d+", r"\g<1>1", text.lines[line - 1])
        yield Finding(
            "launcher-per-task", "warning", line,
            f"srun starts {on_each} times {launcher} on each node, in line {command.line}.",
            f"{launcher} starts one process per GPU itself, so {on_each} of them compete for the same GPUs and port."
            " Use --ntasks-per-node=1.",
            replace_line(line, fixed) if fixed != text.lines[line - 1] else (),
        )  # fmt: skip
        return


def _tasks_without_srun(text: BatchText) -> Iterator[Finding]:
    """Yields a finding for several tasks that nothing starts."""
    tasks = text.value("ntasks") or ""
    on_each = text.value("ntasks-per-node") or ""
    count = int(tasks) if tasks.isdigit() else int(on_each or 0) if on_each.isdigit() else 0
    code = "\n".join(body for _, body in text.body)
    # The number of tasks may also serve as the number of processes or threads that the program starts itself.
    if count < 2 or _STARTER.search(code) or re.search(rf"(?<![\w.]){count}(?![\w.])", code):
        return
    functions = set(_FUNCTION.findall(code))
    programs = [command for command in text.commands if command.name not in PREPARES | functions]
    work = programs[-1] if programs else None
    if work is None or not all(_is_one_process(command) for command in programs):
        return
    option = "ntasks" if tasks.isdigit() else "ntasks-per-node"
    yield Finding(
        "tasks-without-srun", "warning", work.line, f"{work.name} runs once, not as {count} tasks.",
        f"sbatch reserves the tasks of --{option}; srun starts them: srun {work.name} ... For one process with several"
        " threads request --cpus-per-task instead.",
    )  # fmt: skip


def _is_one_process(command: Command) -> bool:
    """Returns whether a command is surely one process: Python, or a program of the user's. Scripts, variables and installed
    programs may contain srun."""
    own = command.program.startswith(("./", "../")) and "." not in command.name.removesuffix(".x").removesuffix(".out")
    return (own or re.fullmatch(r"python[0-9.]*", command.name) is not None) and not (
        command.in_background or launched_program(command) in PER_NODE_LAUNCHERS
    )


def _processes_per_node(text: BatchText) -> Iterator[Finding]:
    """Yields a finding for torchrun with another number of processes than the node has GPUs for the job."""
    gpus = gpus_per_node(text)
    if gpus is None:
        return
    for command in text.running("torchrun"):
        given = option_value(launch_arguments(command, "torchrun"), "--nproc-per-node") or ""
        if not given.isdigit() or int(given) == gpus:
            continue
        line = _line_with(text, command, re.compile(rf"--nproc[-_]per[-_]node[= ]{given}\b"))
        few = int(given) < gpus
        fixed = re.sub(rf"(--nproc[-_]per[-_]node[= ]){given}\b", r"\g<1>gpu", text.lines[line - 1])
        yield Finding(
            "processes-and-gpus", "warning", line,
            f"torchrun starts {given} processes on a node where the job has {gpus} GPU{'s' * (gpus != 1)}.",
            (f"{gpus - int(given)} of them stay idle." if few else "Processes without a GPU fail: invalid device ordinal.")
            + " --nproc-per-node=gpu starts one process per GPU.",
            replace_line(line, fixed) if fixed != text.lines[line - 1] else (),
        )  # fmt: skip


def _line_with(text: BatchText, command: Command, pattern: re.Pattern[str]) -> int:
    """Returns the line of a command, which may be continued over several lines, that matches."""
    numbers = range(command.line, min(command.line + 60, len(text.lines) + 1))
    return next((number for number in numbers if pattern.search(text.lines[number - 1])), command.line)
