"""Writes a batch script for sbatch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from headway.convert.job_description import Group, Job, Loss, Mount, PerNode, Place, RayProgram, Script
from headway.domain.slurm.sbatch_options import LONG_WITH_OPTIONAL_VALUE, LONG_WITHOUT_VALUE
from headway.errors import Fault, InvalidSpec

_ORDER = (
    "job-name", "account", "partition", "qos", "reservation", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task",
    "gpus-per-node", "mem", "mem-per-cpu", "time", "array",
)  # fmt: skip
_PLAIN = re.compile(r"[\w.,:/@%+=&\-\[\]*|]+")
_LONGEST_ARGUMENT = 120_000  # bytes; Linux refuses a longer word
_BOURNE = re.compile(r"(?:^|[/\s])(?:ba|da|k|z|a)?sh(?:\s|$)")
_RAY_PORT = "port=$((20000 + SLURM_JOB_ID % 20000))"


def write_sbatch(job: Job) -> tuple[str, list[Loss]]:
    """Returns the script, and what of the job it does not contain. Raises InvalidSpec for a program that is too long."""
    losses: list[Loss] = []
    interpreter = job.program.interpreter if isinstance(job.program, Script) else "/bin/bash"
    lines = [f"#!{interpreter}", *_directives(job, losses)]
    if isinstance(job.program, Script):
        lines += [f"#SBATCH {_quoted_value(word)}" for word in _container_options(job)]  # the script runs in it
    is_shell = _BOURNE.search(interpreter) is not None
    body = [*(f"export {name}={shlex.quote(value)}" for name, value in job.environment.items()), *job.preamble]
    if body and not is_shell:
        losses.append(Loss("line 1", interpreter, "lost", "these lines of bash are left out: "
                           + "; ".join(body), "start it from a shell script"))  # fmt: skip
        body = []
    match job.program:
        case Script():
            program = list(job.program.lines)
        case PerNode():
            program = _per_node(job, job.program)
        case RayProgram():
            program = _ray(job, job.program)
    blocks = [lines, body, program]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n", losses


def _directives(job: Job, losses: list[Loss]) -> Iterator[str]:
    names = [name for name in _ORDER if name in job.options] + [name for name in job.options if name not in _ORDER]
    for name in names:
        value = job.options[name]
        if name in LONG_WITHOUT_VALUE or (name in LONG_WITH_OPTIONAL_VALUE and not value):
            yield f"#SBATCH --{name}"
            continue
        quote = "" if _PLAIN.fullmatch(value) else '"' if '"' not in value else "'" if "'" not in value else None
        place = job.places.get(name, Place("", ""))
        if quote is None or not value:
            losses.append(
                Loss(place.where, place.text, "lost", "sbatch reads no such value", f"write --{name} by hand")
            )
        else:
            yield f"#SBATCH --{name}={quote}{value}{quote}"


def container_words(job: Job) -> list[str]:
    """Returns the options of srun for the job's container, quoted."""
    return [shlex.quote(word) for word in _container_options(job)]


def _quoted_value(option: str) -> str:
    """Returns an option as an #SBATCH line needs it, where a # would begin a comment."""
    name, _, value = option.partition("=")
    quote = "" if _PLAIN.fullmatch(value) else "'" if '"' in value else '"'
    return f"{name}={quote}{value}{quote}"


def _container_options(job: Job) -> list[str]:
    if not job.image:
        return []
    words = [f"--container-image={_pyxis_name(job.image)}"]
    if job.mounts:
        words.append(f"--container-mounts={','.join(map(_mount, job.mounts.values()))}")
    if job.workdir:
        words.append(f"--container-workdir={job.workdir}")
    return words


def _mount(mount: Mount) -> str:
    if mount.source == "tmpfs":
        return f"tmpfs:{mount.target}"
    return f"{mount.source}:{mount.target}{':ro' * mount.read_only}"


def _pyxis_name(image: str) -> str:
    """Returns an image's name as srun takes it: `nvcr.io#nvidia/pytorch:25.05` for `nvcr.io/nvidia/pytorch:25.05`."""
    host, slash, rest = image.partition("/")
    if image.startswith("/") or "#" in image or "://" in image:
        return image
    if slash and ("." in host or ":" in host or host == "localhost"):
        return rest.removeprefix("library/") if host == "docker.io" else f"{host}#{rest}"
    return image


def _per_node(job: Job, program: PerNode) -> list[str]:
    lines = _exports(program.head_variables)
    # srun does not take this option over from sbatch.
    cpus = job.options.get("cpus-per-task")
    srun = ["srun", *([f"--cpus-per-task={cpus}"] if cpus else []), *container_words(job)]
    groups = program.groups
    only = groups[0] if len(groups) == 1 else None
    if not job.image and job.workdir:
        lines.append(f"cd {shlex.quote(job.workdir)}")
    if only is not None and only.words and not program.rank_variables and not only.variables:
        return [*lines, " ".join([*srun, *only.words])]
    text = "\n".join([*_exports(program.rank_variables), *(_group_lines(only) if only else _by_node(groups))])
    if len(text.encode()) > _LONGEST_ARGUMENT:
        fault = Fault("", "the commands are too long for one job step", "put them into a script file, and call it")
        raise InvalidSpec([fault], "the file")
    end = "END_OF_COMMANDS"
    while re.search(rf"^{end}$", text, re.MULTILINE):
        end += "_"
    shell = groups[0].shell if len({group.shell for group in groups}) == 1 else "bash"
    return [
        *lines, "# Runs on each node.", f"commands=$(cat <<'{end}'", *text.split("\n"), end, ")",
        " ".join([*srun, shell, "-c", '"$commands"']),
    ]  # fmt: skip


def _by_node(groups: tuple[Group, ...]) -> list[str]:
    """Returns shell lines that run the commands of the node's group; groups have consecutive nodes."""
    lines: list[str] = []
    last = -1
    for group in groups:
        last += group.nodes
        is_last = group is groups[-1]
        condition = "else" if is_last else f'{"elif" if lines else "if"} [ "$SLURM_PROCID" -le {last} ]; then'
        lines += [f"{condition}  # {_comment(group.name)}", *_group_lines(group)]
    return [*lines, "fi"]


def _exports(variables: Iterable[tuple[str, str]]) -> list[str]:
    return [f"export {name}={_double_quoted(value)}" for name, value in variables]


def _group_lines(group: Group) -> list[str]:
    return [*_exports(group.variables), *group.text.split("\n")]


def _comment(text: str) -> str:
    return re.sub(r"[^\w .-]", "", text)


def _double_quoted(value: str) -> str:
    """Returns shell text in quotes, except numbers and command substitutions, whose inner quotes are their own."""
    return value if re.fullmatch(r"[\w.]+|\$\(\([^\"]*\)\)|\$\w+", value) else f'"{value}"'


def _ray(job: Job, program: RayProgram) -> list[str]:
    """Returns the lines that start a Ray cluster on all nodes, and then the program on the first node."""
    nodes = job.number("nodes") or 1
    gpus = job.options.get("gpus-per-node", "0").rpartition(":")[2]
    cpus = job.options.get("cpus-per-task", "")
    options = f" --num-gpus={gpus}" + (f" --num-cpus={cpus}" if cpus else "")
    # srun does not take the CPUs over from sbatch.
    srun = "srun --overlap" + (f" --cpus-per-task={cpus}" if cpus else "")
    on_head = f'{srun} --nodes=1 --ntasks=1 --nodelist="$head"'
    container = "".join(f" {word}" for word in container_words(job))
    lines = [
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        _RAY_PORT,
        "export RAY_ADDRESS=$head:$port",
        f"{on_head}{container} \\",
        f'    ray start --head --node-ip-address="$head" --port="$port"{options} --block &',
        "ray_head=$!",
        "# The head answers before workers join it.",
        f"until {on_head}{container} ray status >/dev/null 2>&1; do",
        '    kill -0 "$ray_head" || exit 1',
        "    sleep 1",
        "done",
    ]
    if nodes > 1:
        lines += [
            f'{srun} --nodes={nodes - 1} --ntasks={nodes - 1} --exclude="$head"{container} \\',
            f'    ray start --address="$RAY_ADDRESS"{options} --block &',
        ]
    return [*lines, f"{on_head}{container} {_ray_entrypoint(program.entrypoint)}"]


def _ray_entrypoint(text: str) -> str:
    is_one = not re.search(r"[\n;|&<>(){}`]|^\w+=", text)
    return text if is_one else f"bash -c {shlex.quote(text)}"
