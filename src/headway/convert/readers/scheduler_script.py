"""The parts that scripts of PBS, LSF and Grid Engine share: lines of directives, and variables and commands of the scheduler
in the other lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.convert.job_description import Place, Script
from headway.convert.reading_state import Item, Reading
from headway.domain.slurm.other_schedulers import COMMANDS

_HEAD_END = re.compile(r"\s*[^#\s]")
_COMMAND = re.compile(rf"(?:^|[;&|(`]|\$\()\s*({'|'.join(COMMANDS)})\b")
_SURE_NAME = re.compile(r"\b(?:PBS|LSB|LS|SGE)_\w+")
_STARTS_TASKS = re.compile(
    r"\b(?:srun|\w*mpi(?:run|exec)\w*|orterun|prun|jsrun|aprun|ibrun|charmrun|pbsdsh|blaunch|qrsh|SLURM_NTASKS\w*|\w*(?:NODE|HOST)FILE)\b"
    r"|\bmpi(?:run|exec)"
)
_ANY_DIRECTIVE = re.compile(r"#(?:PBS|BSUB|SBATCH|COBALT)\s|#\$\s+-")


@dataclass(frozen=True, slots=True)
class Directives:
    """How a scheduler marks its directives. `anywhere`: also after the first command. `pairs`: options whose value has two
    words."""

    sign: str
    anywhere: bool
    flags: frozenset[str]  # options without a value
    pairs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TakenApart:
    """A script: options of its directives, the interpreter of its first line, and the other lines by their numbers."""

    items: tuple[Item, ...]
    interpreter: str
    lines: tuple[tuple[int, str], ...]


def take_apart(reading: Reading, text: str, directives: Directives) -> TakenApart:
    """Returns the parts of a script. Directives of other schedulers are lost."""
    items: list[Item] = []
    kept: list[tuple[int, str]] = []
    lines = text.split("\n")
    interpreter = ""
    if any(line.endswith("\r") for line in lines):
        reading.change(Place("line 1", "CR LF"), "line ends of Windows become those of Linux")
        lines = [line.rstrip("\r") for line in lines]
    in_head = True
    mark = re.compile(rf"{re.escape(directives.sign)}\s*(?=-)" if directives.sign != "#$" else r"#\$\s+(?=-)|#\$(?=-)")
    for number, line in enumerate(lines, start=1):
        in_head = in_head and not _HEAD_END.match(line)
        found = mark.match(line)
        if number == 1 and line.startswith("#!"):
            interpreter = line[2:].strip()
        elif found and (in_head or directives.anywhere):
            items += _items(number, line[found.end() :], directives)
        elif found:
            reading.same(
                Place(f"line {number}", line), "the other scheduler does not read it either after the first command"
            )
        elif mark.match(line.lstrip()):
            reading.same(
                Place(f"line {number}", line.strip()), "the other scheduler reads no indented directives either"
            )
            kept.append((number, line))
        elif _ANY_DIRECTIVE.match(line):
            reading.lose(
                Place(f"line {number}", line), "it is for another scheduler", "convert the file with --from of that one"
            )
        else:
            kept.append((number, line))
    return TakenApart(tuple(items), interpreter, tuple(kept))


def _items(number: int, text: str, directives: Directives) -> list[Item]:
    where = f"line {number}"
    lexer = shlex.shlex(text, posix=True, punctuation_chars="")
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        words = list(lexer)
    except ValueError:  # a quote that stays open
        words = text.split()
    found: list[Item] = []
    at = 0
    while at < len(words):
        word = words[at]
        count = 2 if word in directives.pairs else 0 if word in directives.flags or not word.startswith("-") else 1
        value = " ".join(words[at + 1 : at + 1 + count])
        found.append(Item(Place(where, f"{word} {value}".strip()), word, value))
        at += 1 + count
    return found


def set_script(
    reading: Reading,
    parts: TakenApart,
    variables: Mapping[str, str],
    names: re.Pattern[str],
    supplied: Sequence[str] = (),
) -> None:
    """Sets the job's program to the other lines. `variables`: variable of the scheduler -> Slurm's, "" for none. `names`:
    matches all variables of the scheduler, also unknown ones. `supplied`: variables that the preamble sets."""
    own = {match[1] for _, line in parts.lines for match in re.finditer(r"(?:^|[\s;])(?:export\s+)?(\w+)=", line)}
    # A variable that the script itself sets, for example if it is empty, keeps its name and gets Slurm's value.
    text = "\n".join(line for _, line in parts.lines)
    reading.job.preamble += [
        f'export {name}="${{{variables[name]}:-}}"'
        for name in sorted(own & variables.keys())
        if variables[name] and re.search(rf"\$\{{?{name}\b", text)
    ]
    kept: list[str] = []
    for number, line in parts.lines:
        if line.lstrip().startswith("#"):
            kept.append(line)
            continue
        where = f"line {number}"
        replaced = re.sub(
            r"\$(\{?)(\w+)\b",
            lambda found: f"${found[1]}{_better(found[2], variables, own)}",
            line,
        )
        # Names that belong to one scheduler alone are also replaced in arithmetic, tests and programs in the text.
        replaced = _SURE_NAME.sub(lambda found: _better(found[0], variables, own), replaced)
        for name in dict.fromkeys(names.findall(replaced)):
            if name in own or name in supplied:
                continue
            better = variables.get(name, "")
            remedy = f"Slurm's variable is {better}" if better else "look for its counterpart in sbatch's manual page"
            reading.lose(Place(where, name), "Slurm does not set this variable", remedy)
        for command in dict.fromkeys(_COMMAND.findall(replaced)):
            remedy = f"Slurm's command is {COMMANDS[command]}, which takes other options"
            reading.lose(Place(where, command), "this is a command of another scheduler", remedy)
        if replaced != line:
            reading.carry(Place(where, line))
        kept.append(replaced)
    while kept and not kept[0].strip():
        kept.pop(0)
    while kept and not kept[-1].strip():
        kept.pop()
    first = parts.lines[0][0] if parts.lines else 1
    interpreter = reading.interpreter or parts.interpreter or "/bin/bash"
    reading.job.program = Script(tuple(kept), interpreter, first)
    _one_process(reading, "\n".join(kept))


def _one_process(reading: Reading, text: str) -> None:
    """Turns tasks on one node into CPUs of one task if nothing in the script starts tasks: a program with threads."""
    job = reading.job
    option = next((name for name in ("ntasks-per-node", "ntasks") if (job.number(name) or 1) > 1), "")
    place = job.places.get(option)
    if place is None or job.number("nodes") != 1 or "cpus-per-task" in job.places or _STARTS_TASKS.search(text):
        return
    count = job.options.pop(option)
    del job.places[option]
    reading.set(place, "cpus-per-task", count)
    why = f"nothing in the script starts tasks, so the {count} cores are CPUs of one task"
    reading.change(place, why, f"write --ntasks={count} for a program that starts tasks itself")


def _better(name: str, variables: Mapping[str, str], own: set[str]) -> str:
    return (variables.get(name) or name) if name not in own else name


def node_file(variable: str, per_node: int) -> list[str]:
    """Returns shell lines that write the names of the nodes into a file, one line a task, as other schedulers do."""
    return [
        f"# A file with the names of the nodes, each {per_node} times.",
        f"export {variable}=$(mktemp)",
        'scontrol show hostnames "$SLURM_JOB_NODELIST" |'
        f" awk '{{for (i = 0; i < {per_node}; i++) print}}' >\"${variable}\"",
    ]


def array_range(text: str) -> str:
    """Returns the value of sbatch's --array for 1-10, 1-10:2, 1,3,5 or 1-10%5. Raises ValueError."""
    found = text.strip("[] ")
    if not re.fullmatch(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?", found):
        raise ValueError("is no list of numbers for an array")
    return found


def log_file(text: str, patterns: Mapping[str, str]) -> str:
    """Returns the name of a log for sbatch: `patterns` are replaced, and HOST: at its begin is left out."""
    host, colon, path = text.partition(":")
    found = path if colon and "/" not in host else text
    found = found.replace("%", "%%") if not any(key.startswith("%") for key in patterns) else found
    for pattern, better in patterns.items():
        found = found.replace(pattern, better)
    if not found:
        raise ValueError("names no file")
    if "$" in found:
        raise ValueError("sbatch replaces no variables in names of files")
    return found


def set_interpreter(reading: Reading, item: Item, parts: TakenApart) -> None:
    """Carries an option that names the shell; for other schedulers it takes precedence over the first line."""
    shell = item.value.partition(",")[0].partition(":")[2] or item.value.partition(",")[0]
    first = parts.interpreter.split(" ")[0]
    if not re.fullmatch(r"/[\w./-]+", shell):
        raise ValueError("is no path of a shell")
    if shell == first:
        reading.same(item.place, "the first line names it")
    else:
        reading.interpreter = shell
        reading.carry(item.place)


def mail_types(text: str, letters: Mapping[str, str]) -> str:
    """Returns the value of sbatch's --mail-type for letters such as abe."""
    unknown = [letter for letter in text if letter not in letters]
    if unknown or not text:
        raise ValueError("has letters that are no kind of mail")
    return ",".join(dict.fromkeys(letters[letter] for letter in text))
