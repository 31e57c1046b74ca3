"""Explains why a job failed: from its exit code or signal, and from its log if its container did not start. Pure."""

from __future__ import annotations

import re
import signal

from headway.domain.slurm.nodes_and_jobs import JobState

# Exit code of a task when its container could not be created (node/image/spank/container.c).
CONTAINER_FAILED_CODE = 125
_UNDER_WAY = ("importing ", "imported ", "waiting ")
_CODES = {
    1: "the program reported an error (exit code 1)",
    2: "the program got wrong arguments or a file is missing (exit code 2)",
    CONTAINER_FAILED_CODE: "its container could not be started (exit code 125): headway logs says why",
    126: "the program can't be run (exit code 126): make the file executable",
    127: "the program was not found (exit code 127)",
}
_LONGEST = 400
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# The last line of a Python traceback, also with the rank that torchrun or srun --label puts before it.
_EXCEPTION = re.compile(
    r"^(?:\[?(?:rank)?\d+\]?: ?)*(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?:: .*)?$"
)
_ERROR = re.compile(
    r"\b(?:error|fatal|killed|panic|segmentation fault|bus error|out of memory|no such file|permission denied|"
    r"command not found|no space left|illegal instruction|cannot|failed)\b",
    re.IGNORECASE,
)
# What launchers say about a rank that ended: the cause is in an earlier line.
_OF_LAUNCHERS = re.compile(
    r"ChildFailedError|exitcode +:|error_file|^srun: |^slurmstepd: error: (?:Detected|\*\*\*)|^Traceback"
)


def explain_failure(job: JobState) -> str:
    """Returns why a job failed, from its exit code and Slurm's reason, or "" if that is unknown."""
    code = job.exit_code
    if code > 128 and code - 128 in {int(number) for number in signal.Signals}:
        name = signal.Signals(code - 128).name
        more = {"SIGKILL": ": out of memory, or killed from outside", "SIGSEGV": ": a memory error of the program"}.get(
            name, ""
        )
        return f"the program was ended by {name}{more}"
    if code:
        return _CODES.get(code, f"the program ended with exit code {code}")
    match = re.match(r"RaisedSignal:(\d+)", job.reason)
    if match:
        return f"the program was ended by signal {match[1]}"
    return "could not be started" if job.reason in ("JobLaunchFailure", "LaunchFailure") else ""


def last_error(log: str) -> str:
    """Returns the last line of a log's end that states an error, or "" if there is none. The line of an exception comes before
    other lines with the word error."""
    lines = [plain_line(line) for line in log.split("\n")]
    stated = [line for line in lines if line and not _OF_LAUNCHERS.search(line)]
    for pattern in (_EXCEPTION, _ERROR):
        for line in reversed(stated):
            if pattern.search(line):
                return line[:_LONGEST]
    return ""


def plain_line(line: str) -> str:
    """Returns a line as a terminal shows it in the end: without colours, and without text that was overwritten."""
    shown = [part for part in _ESCAPES.sub("", line).split("\r") if part.strip()]
    return "".join(letter for letter in shown[-1] if letter.isprintable()).strip() if shown else ""


def container_error(log: str) -> str:
    """Returns why a container did not start, from the end of the job's error file, or "" when the file does not
    say."""
    lines = log.splitlines()
    for at in range(len(lines) - 1, -1, -1):
        message = lines[at].removeprefix("headway: ")
        if message != lines[at] and not message.startswith(_UNDER_WAY):
            more = lines[at + 1].strip() if lines[at + 1 : at + 2] and lines[at + 1].startswith("  ") else ""
            text = f"its container could not be started: {message}" + (f"; {more}" if more else "")
            return "".join(letter if letter.isprintable() else "?" for letter in text)[:600]
    return ""
