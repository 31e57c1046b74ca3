"""Rules about #SBATCH lines: lines that sbatch does not read, and values that it does not take."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator

from headway.domain.slurm.sbatch_options import LONG, LONG_WITH_VALUE, Option, parse_options, script_lines
from headway.lint.batch_text import BatchText, Directive
from headway.lint.findings import Edit, Finding, delete_line, insert_before, replace_line

FolderExists = Callable[[str], bool]
_DIRECTIVE = re.compile(r"#SBATCH(?:\s|$)")
_NEARLY = re.compile(r"(\s*)#(\s*)([A-Za-z]{5,7})\s+(-{1,2}[A-Za-z].*)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
# Variables of a job -> the pattern that sbatch replaces in file names.
_PATTERNS = {
    "SLURM_JOB_ID": "%j", "SLURM_JOBID": "%j", "SLURM_ARRAY_JOB_ID": "%A", "SLURM_ARRAY_TASK_ID": "%a",
    "SLURM_JOB_NAME": "%x", "USER": "%u", "LOGNAME": "%u", "SLURM_JOB_USER": "%u",
}  # fmt: skip
_FILES = ("output", "error", "input")
_TIME = re.compile(r"\d+|\d+:\d+(:\d+)?|\d+-\d+(:\d+){0,2}|infinite|unlimited|-1", re.IGNORECASE)
_COUNT = re.compile(r"\d+")
_NODES = re.compile(r"\d+[kKmM]?(-\d+[kKmM]?)?(:\d+)?|\d+(,\d+|,\d+-\d+(:\d+)?)*")
_MEMORY = re.compile(r"\d+([kKmMgGtT][bB]?)?")
# Options whose values are checked: what a value looks like, and an example. sbatch may take more than these patterns
# for other options, so those are left to it.
_VALUES = {
    "time": (_TIME, "minutes, HH:MM:SS or D-HH:MM:SS"),
    "time-min": (_TIME, "minutes, HH:MM:SS or D-HH:MM:SS"),
    "nodes": (_NODES, "2 or 2-4"),
    "ntasks": (_COUNT, "a number"),
    "ntasks-per-node": (_COUNT, "a number"),
    "cpus-per-task": (_COUNT, "a number"),
    "mem": (_MEMORY, "64G"),
    "mem-per-cpu": (_MEMORY, "4G"),
    "mem-per-gpu": (_MEMORY, "64G"),
}


def directive_rules(text: BatchText, folder_exists: FolderExists | None) -> Iterator[Finding]:
    """Yields the findings about #SBATCH lines. `folder_exists` says whether a folder exists where the script will be
    submitted; None: the cluster creates folders of logs."""
    if not text.script.strip():
        yield Finding(
            "empty-script", "error", 1, "The script is empty.", "sbatch refuses a script without an interpreter."
        )
        return
    yield from _line_ends(text)
    yield from _interpreter(text)
    yield from _unread_lines(text)
    for directive in text.directives:
        yield from _options(directive, is_last=directive.line == text.last_directive)
    yield from _repeated(text)
    if folder_exists is not None:
        yield from _log_folders(text, folder_exists)
    yield from _shared_log(text)


def _line_ends(text: BatchText) -> Iterator[Finding]:
    numbers = [number for number, line in enumerate(text.lines, start=1) if line.endswith("\r")]
    if numbers:
        edits = tuple(Edit(number, number, (text.lines[number - 1].rstrip("\r"),)) for number in numbers)
        yield Finding(
            "dos-line-ends", "error", numbers[0], "Lines end in CR LF, as Windows editors write them.",
            "sbatch refuses such a script; the shell would take CR as part of each last word.", edits,
        )  # fmt: skip


def _interpreter(text: BatchText) -> Iterator[Finding]:
    if text.script.startswith("#!"):
        return
    blank = next((number for number, line in enumerate(text.lines, start=1) if line.strip()), 1) - 1
    moved = text.lines[blank].lstrip().startswith("#!") if blank < len(text.lines) else False
    found = Edit(1, blank + 1, (text.lines[blank].lstrip(),)) if moved else None
    yield Finding(
        "no-interpreter", "error", 1, "The first line names no interpreter.",
        "sbatch refuses a script that does not begin with #!, such as #!/bin/bash.",
        (found,) if found else insert_before(1, "#!/bin/bash"),
    )  # fmt: skip


def _unread_lines(text: BatchText) -> Iterator[Finding]:
    for number, line in enumerate(text.lines, start=1):
        late = number > text.head_lines
        if _DIRECTIVE.match(line):
            if late and text.is_shell and number in text.comments and not _writes_jobs(text):
                yield _late(text, number, line)
            continue
        near = _NEARLY.fullmatch(line.rstrip("\r"))
        if late or near is None or not _is_sbatch(near[3]) or _is_usage(near):
            continue
        commented = near[3] == "SBATCH" and bool(near[2]) and not near[1]
        yield Finding(
            "not-a-directive", "note" if commented else "warning", number,
            f"sbatch does not read this line: {line.strip()[:60]}",
            "A line counts only if it begins with #SBATCH, in capitals and without blanks before or inside."
            + (" Write ##SBATCH for a line that is meant to be switched off." if commented else ""),
            () if commented else replace_line(number, f"#SBATCH {near[4]}"),
        )  # fmt: skip


def _is_sbatch(word: str) -> bool:
    return word.upper() == "SBATCH" or difflib.SequenceMatcher(None, word.upper(), "SBATCH").ratio() > 0.8


def _writes_jobs(text: BatchText) -> bool:
    """Returns whether the script is no batch script, but one that submits others."""
    return not text.directives and any(command.name == "sbatch" for command in text.commands)


def _is_usage(near: re.Match[str]) -> bool:
    """Returns whether a comment says how to submit the script: `# sbatch -N 2 train.sbatch`."""
    blank, word, rest = near[2], near[3], near[4]
    words = script_lines(f"#SBATCH {rest}")[0]
    return (bool(blank) and not word.isupper()) or any(not option.name for option in parse_options(words))


def _late(text: BatchText, number: int, line: str) -> Finding:
    first = text.head_lines + 1
    after = text.last_directive if text.directives else 1
    return Finding(
        "late-directive", "warning", number, f"sbatch ignores this line, because line {first} is a command already.",
        "sbatch stops reading #SBATCH lines at the first command.",
        (*insert_before(min(after, text.head_lines) + 1, line.rstrip("\r")), *delete_line(number)),
    )  # fmt: skip


def _options(directive: Directive, *, is_last: bool) -> Iterator[Finding]:
    strays = 0
    for option in directive.options:
        typed = option.words[0]
        if typed in ("hetjob", "packjob"):  # separates the components of a heterogeneous job
            continue
        strays += not option.name
        if not option.name and strays > 1:
            continue
        if not option.name:
            yield Finding(
                "stray-word", "error", directive.line, f"{typed[:40]!r} is no option.",
                "sbatch refuses a script with other words in its #SBATCH lines. A comment begins with #.",
            )  # fmt: skip
            continue
        if typed.startswith("--") and option.name not in LONG:
            yield from _unknown(directive, option)
            continue
        yield from _variables(directive, option)
        pattern, example = _VALUES.get(option.name, (None, ""))
        if option.name in LONG_WITH_VALUE and not option.value and "=" not in typed and len(option.words) == 1:
            yield Finding(
                "missing-value", "error" if is_last else "warning", directive.line, f"{typed} has no value.",
                "sbatch refuses the script." if is_last else "sbatch takes the first word of the next line as its value.",
            )  # fmt: skip
        elif pattern is not None and "$" not in option.value and not pattern.fullmatch(option.value):
            yield Finding(
                "invalid-value", "error", directive.line, f"{option.value[:40]!r} is not a value of --{option.name}.",
                f"sbatch refuses the script. It takes {example}.",
            )  # fmt: skip


def _unknown(directive: Directive, option: Option) -> Iterator[Finding]:
    typed = option.words[0].partition("=")[0]
    # Only a slip of the pen: --container-env of another plugin is not meant as --container-name.
    near = difflib.get_close_matches(typed[2:].replace("_", "-"), LONG, n=1, cutoff=0.88)
    edits = replace_line(directive.line, directive.text.replace(typed, f"--{near[0]}", 1)) if near else ()
    yield Finding(
        "unknown-option", "warning", directive.line, f"sbatch has no option {typed}.",
        (f"Did you mean --{near[0]}? " if near else "") + "sbatch refuses an option that neither it nor a plugin knows.",
        edits,
    )  # fmt: skip


def _variables(directive: Directive, option: Option) -> Iterator[Finding]:
    names = [first or second for first, second in _VARIABLE.findall(option.value)]
    home = option.name in (*_FILES, "chdir") and option.value.startswith("~")
    if not names and not home:
        return
    fixed = _VARIABLE.sub(lambda found: _PATTERNS.get(found[1] or found[2], found[0]), option.value)
    edits: tuple[Edit, ...] = ()
    if option.name in _FILES and fixed != option.value and "$" not in fixed:
        edits = replace_line(directive.line, directive.text.replace(option.value, fixed, 1))
    what = "~" if home and not names else f"${names[0]}"
    yield Finding(
        "variable-in-directive", "warning", directive.line, f"sbatch takes {what} literally here.",
        "No shell reads #SBATCH lines. File names may contain %j (job), %x (name), %u (user), %A and %a (array); give other"
        " values on the command line of sbatch.",
        edits,
    )  # fmt: skip


def _repeated(text: BatchText) -> Iterator[Finding]:
    if any("hetjob" in directive.text or "packjob" in directive.text for directive in text.directives):
        return  # each component has options of its own
    first: dict[str, int] = {}
    for directive in text.directives:
        for option in directive.options:
            if option.name in first and option.name in LONG_WITH_VALUE and option.name not in ("secret", "bb"):
                yield Finding(
                    "repeated-option", "note", directive.line,
                    f"--{option.name} is given in line {first[option.name]} already.", "The last one counts.",
                )  # fmt: skip
            first.setdefault(option.name, directive.line)


def _log_folders(text: BatchText, folder_exists: FolderExists) -> Iterator[Finding]:
    seen: set[str] = set()
    for name in ("output", "error"):
        folder = (text.value(name) or "").rpartition("/")[0]
        folder = folder.replace("%x", text.value("job-name") or "%x")
        if not folder or folder in seen or re.search(r"\$|%[0-9]*[ux]", folder) or folder.startswith(("~", "/dev")):
            continue
        seen.add(folder)
        # A folder with a pattern is another one for each job, so it can't exist before the job.
        new = "%" in folder
        if new or not folder_exists(folder):
            yield Finding(
                "log-folder", "note", text.line_of(name),
                f"The folder {folder} does not exist before the job starts"
                + ("; it is another one for each job." if new else "."),
                "Clusters of Headway and Slurm 24.11 create it. Where Slurm is older the job fails at once, without a log"
                " that says why; mkdir in the script is too late.",
            )  # fmt: skip


def _shared_log(text: BatchText) -> Iterator[Finding]:
    output = text.value("output")
    if text.value("array") and output and "%" not in output and not output.startswith("/dev/"):
        stem, dot, end = output.rpartition(".")
        better = f"{stem}_%A_%a{dot}{end}" if dot and "/" not in end else f"{output}_%A_%a"
        line = text.line_of("output")
        yield Finding(
            "shared-log", "warning", line, f"All tasks of the array write to {output}.",
            "Each task replaces the log of the others. %A is the job's number, %a the task's.",
            replace_line(line, text.lines[line - 1].replace(output, better, 1)) if text.has_line("output") else (),
        )  # fmt: skip
