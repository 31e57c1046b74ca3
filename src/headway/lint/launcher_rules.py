"""Rules about how a script starts its programs: steps inside steps, one node of several, fixed ports, lost ends."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headway.lint.batch_text import BatchText, Command, launch_arguments, launched_program
from headway.lint.findings import Edit, Finding, insert_before, replace_line
from headway.lint.resource_rules import PER_NODE_LAUNCHERS, PREPARES, gpus_per_node, node_count

FREE_PORT = "$((10000 + SLURM_JOB_ID % 50000))"
_PORT = re.compile(
    r"((?<!\w)MASTER_PORT=|--master[-_]port[= ]|--main_process_port[= ]|--rdzv[-_]endpoint[= ]\S*?:"
    r"|(?<!\w)ray start\s[^|;&#]*?--port[= ])(\d{2,5})(?![\w$`{.])"
)
_WHOLE_NODE_GPUS = 8  # a job with so many GPUs on a node shares it with no other training
_NESTED = re.compile(r"(?:^|[\s;&|(])srun\s+\S")
_SHELLS = ("bash", "sh", "zsh", "dash")


def launcher_rules(text: BatchText) -> Iterator[Finding]:
    """Yields the findings about how programs are started."""
    yield from _nested_srun(text)
    yield from _one_node_only(text)
    yield from _fixed_ports(text)
    yield from _every_ray(text)
    yield from _no_wait(text)
    yield from _lost_exit_code(text)
    yield from _conda(text)
    yield from _script_path(text)


def _nested_srun(text: BatchText) -> Iterator[Finding]:
    for command in text.commands:
        if command.name != "srun":
            continue
        inner = [word for word in command.arguments if word == "srun" or (" " in word and _NESTED.search(word))]
        if inner:
            yield Finding(
                "nested-srun", "warning", command.line, "srun starts a program that starts srun again.",
                "The inner step waits for resources that the outer one holds. Start each step from the batch script, or"
                " give the inner one --overlap.",
            )  # fmt: skip


# Programs that a script starts on a node only to learn something of it.
_ASKS = ("hostname", "ip", "nvidia-smi", "date", "echo")


def _one_node_only(text: BatchText) -> Iterator[Finding]:
    nodes = node_count(text)
    if nodes is None or nodes < 2:
        return
    if any(
        command.name in ("pdsh", "ssh", "mpirun", "mpiexec", "parallel", "bash", "sh")
        or (command.name == "srun" and launched_program(command) not in _ASKS)
        for command in text.commands
    ):
        return
    for command in text.commands:
        launcher = launched_program(command)
        # deepspeed reaches other nodes by ssh if it has a host file.
        if launcher in PER_NODE_LAUNCHERS and not any("hostfile" in word for word in command.arguments):
            raw = text.lines[command.line - 1]
            one_task = text.value("ntasks", "ntasks-per-node") in (None, "1")
            at = raw.find(command.program)
            fixed = f"{raw[:at]}srun {raw[at:]}" if at >= 0 and one_task else raw
            yield Finding(
                "one-node-only", "warning", command.line,
                f"{launcher} runs on the first of {nodes} nodes only.",
                f"The batch script runs on the first node; srun starts {launcher} on each of them.",
                replace_line(command.line, fixed) if fixed != raw else (),
            )  # fmt: skip
            return


def _fixed_ports(text: BatchText) -> Iterator[Finding]:
    whole_node = "exclusive" in text.options or text.value("mem") in ("0", "0G")
    if whole_node or (gpus_per_node(text) or 0) >= _WHOLE_NODE_GPUS:
        return  # no other such job is on the nodes
    code = "\n".join(body for _, body in text.body)
    for number, line in enumerate(text.lines[text.head_lines :], start=text.head_lines + 1):
        found = None if line.lstrip().startswith(("#", "echo ", "printf ")) else _PORT.search(line)
        if found is None or found[2] == "0":  # with 0 a free port is chosen
            continue
        # Within single quotes the shell would not compute the number.
        quoted = line[: found.start()].count("'") % 2 == 1
        # A number that also stands elsewhere, as in --dist-url=tcp://host:29500, must stay the same there.
        elsewhere = len(re.findall(rf"(?<!\d){found[2]}(?!\d)", code)) > len(
            [one for one in _PORT.finditer(code) if one[2] == found[2]]
        )
        fixed = f"{line[: found.start(2)]}{FREE_PORT}{line[found.end(2) :]}"
        yield Finding(
            "fixed-port", "warning", number, f"Port {found[2]} is fixed.",
            "Two such jobs on one node can't both listen there: the second one fails, or joins the first one's training.",
            () if quoted or elsewhere else replace_line(number, fixed),
        )  # fmt: skip


def _every_ray(text: BatchText) -> Iterator[Finding]:
    """Yields a finding for commands that end every Ray of the node."""
    for command in text.commands:
        verb = "".join(launch_arguments(command, "ray")[:1]) if launched_program(command) == "ray" else ""
        if verb in ("stop", "symmetric-run"):
            yield Finding(
                "every-ray", "warning", command.line, f"ray {verb} ends all of your Rays on the node.",
                "Another job of yours there loses its Ray. Start Ray with ray start --block in a step: it ends with the job."
                " headway run --launcher ray does so.",
            )  # fmt: skip


# Commands that take no time.
_BESIDES = ("cd", "echo", "export", "date", "printf", "touch", "mkdir", "hostname", "set", "module", "true", "rm")


def _no_wait(text: BatchText) -> Iterator[Finding]:
    """Yields a finding for programs in the background that the script does not wait for."""
    behind: Command | None = None
    for command in text.commands:
        if command.in_background and command.program:
            behind = command
        elif command.program and command.name not in _BESIDES:
            behind = None  # waits, or works while the others run: a server or a monitor ends with the job
    if behind is None:
        return
    last = len(text.lines)
    yield Finding(
        "no-wait", "warning", behind.line, f"The script ends while {behind.name} runs in the background.",
        "The job ends with its batch script, and Slurm ends all processes that are left.",
        () if text.is_cut_off else insert_before(last + 1, "wait"),
    )  # fmt: skip


def _lost_exit_code(text: BatchText) -> Iterator[Finding]:
    """Yields a note where the last command hides that an earlier one failed."""
    programs = [command for command in text.commands if command.program]
    work = [command for command in programs if launched_program(command) not in PREPARES | _QUIET]
    code = "\n".join(body for _, body in text.body)
    if not work or re.search(r"\$\?|PIPESTATUS|\bpipestatus\b|\bexit\s+[\"'$1-9]|\btrap\b.*\b(?:ERR|EXIT)\b", code):
        return
    last = work[-1]
    name = launched_program(last)
    name = "srun" if last.name == "srun" and name[:1] == "$" else name
    behind = programs[programs.index(last) + 1 :]
    message = f"The job is COMPLETED also if {name} fails."
    piped = last.is_piped and "pipefail" not in code and bool(behind) and behind[0].name == "tee"
    piped = piped and behind[0].line == last.line
    edits: tuple[Edit, ...]
    if piped and (len(behind) == 1 or _is_strict(text)):
        own_line = not re.match(r"\s|.*;;", text.lines[last.line - 1])
        edits = insert_before(last.line, "set -o pipefail") if own_line and _has_pipefail(text) else ()
        why = "A pipeline's exit code is that of its last command, here tee. With set -o pipefail a failure counts."
        yield Finding("exit-code-lost", "note", last.line, message, why, edits)
    elif not _is_strict(text) and not last.in_background and behind and programs[-1].name in _LAST_WORDS:
        end = text.end_of(last.line)
        in_branch = any(
            (line[:1].isspace() and line.strip()) or line.startswith(("fi", "done", "}", "esac"))
            for line in text.lines[end:]
        )
        if in_branch or any(command.name not in (*_LAST_WORDS, "tee") for command in behind):
            return
        plain = not re.match(r"\s|.*;;", text.lines[last.line - 1]) and not last.is_piped
        plain = plain and not text.is_cut_off and "exit_code" not in code and all(one.line > end for one in behind)
        last_line = len(text.lines)
        edits = (*insert_before(end + 1, "exit_code=$?"), *insert_before(last_line + 1, "exit $exit_code"))
        why = f"A job's state is the exit code of its last command, here {programs[-1].name}."
        yield Finding("exit-code-lost", "note", programs[-1].line, message, why, edits if plain else ())


def _is_strict(text: BatchText) -> bool:
    """Returns whether the script ends at the first command that fails."""
    interpreter = text.lines[0].split() if text.lines else []
    return any(re.fullmatch(r"-\w*e\w*", word) for word in interpreter) or any(
        command.name == "set" and any(re.fullmatch(r"-\w*e\w*|errexit", word) for word in command.arguments)
        for command in text.commands
    )


def _has_pipefail(text: BatchText) -> bool:
    return re.search(r"\b(?:ba|z|k)sh\b", text.lines[0]) is not None


_LAST_WORDS = ("echo", "date", "printf", "touch", "sync")
_QUIET = frozenset({"pushd", "popd", "clear", "gzip", "gunzip", "scp", "sbatch", "xargs", "cp"})


_CONDA = re.compile(r"conda|mamba|forge|python|\$", re.IGNORECASE)
_HOOK = re.compile(r"conda\.sh|shell\.\w+|\bhook\b")


def _conda(text: BatchText) -> Iterator[Finding]:
    first = text.lines[0] if text.lines else ""
    if re.search(r"\s(?:-\w*[li]\w*|--login)(?:\s|$)", first):
        return
    for command in text.commands:
        # A file that is read, and a module of conda, may define the function.
        module = command.name in ("module", "ml") and any(_CONDA.search(word) for word in command.arguments)
        if command.name in ("source", ".") or module or any(_HOOK.search(word) for word in command.words):
            return
        if command.name == "conda" and command.arguments[:1] == ("activate",):
            yield Finding(
                "conda-activate", "warning", command.line, "conda activate does not work in a batch script by itself.",
                "It is a shell function that conda init puts into ~/.bashrc, which a batch script does not read.",
                insert_before(command.line, 'source "$(conda info --base)/etc/profile.d/conda.sh"'),
            )  # fmt: skip
            return


_OWN_PATH = re.compile(
    r"(?:dirname|realpath|readlink)\b[^|;]*?(?:\$0|\$\{0\}|\$\{?BASH_SOURCE)|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}"
)
# What a script reads that knows of the copy.
_SUBMIT_FOLDER = re.compile(r"SLURM_SUBMIT_DIR|scontrol\s+show\s+job|slurmd|spool|slurm_script")


def _script_path(text: BatchText) -> Iterator[Finding]:
    """Yields a finding for a folder that is taken from the script's own path."""
    found = next(((number, match) for number, body in text.body if (match := _OWN_PATH.search(body))), None)
    if found is None or not text.directives or any(_SUBMIT_FOLDER.search(body) for _, body in text.body):
        return
    number, match = found
    path = "$BASH_SOURCE" if "BASH" in match[0] else "$0"
    yield Finding(
        "script-path", "warning", number, f"{path} is not the path of the submitted file.",
        "The job runs a copy in a folder of slurmd. $SLURM_SUBMIT_DIR is the folder in which sbatch was called, where the job"
        " starts.",
    )  # fmt: skip
