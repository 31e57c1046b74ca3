"""Rules about jobs that end early and begin again: signals, requeues, logs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headway.lint.batch_text import BatchText, Command
from headway.lint.findings import Edit, Finding, insert_before, replace_line

_SIGNAL = re.compile(r"(?:([RB]{1,2}):)?([A-Za-z0-9]+)(?:@(\d+))?")
# Words by which a script shows that its program continues from a checkpoint.
_CONTINUES = re.compile(r"checkpoint|ckpt|resume|restart|restore|snapshot|headway_train", re.IGNORECASE)
_LAST_WORDS = ("echo", "date", "printf", "touch", "sync", "exit", "conda", "deactivate")
_NUMBERS = {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM", "18": "CONT"}
# Files that a script reads to prepare an environment; another one may contain the handler.
_ENVIRONMENT = re.compile(r"activate|bashrc|profile|conda|venv|modules|setvars|spack")
_BLOCKS = ("srun", "python", "python3", "torchrun", "deepspeed", "accelerate", "mpirun", "mpiexec", "bash", "sh", "apptainer",
           "singularity")  # fmt: skip


def restart_rules(text: BatchText) -> Iterator[Finding]:
    """Yields the findings about signals before the end and about requeued jobs."""
    yield from _signal(text)
    if "requeue" in text.options:
        yield from _requeue(text)


def _signal(text: BatchText) -> Iterator[Finding]:
    found = _SIGNAL.fullmatch(text.value("signal") or "")
    if found is None:
        return
    line, name = text.line_of("signal"), _signal_name(found[2])
    to_script = "B" in (found[1] or "")
    code = "\n".join(body for _, body in text.body)
    trap = next((command for command in text.commands if command.name == "trap" and _handles(command, name)), None)
    if not to_script:
        if not any(command.name == "srun" for command in text.commands):
            value = text.value("signal") or ""
            fixed = text.lines[line - 1].replace(value, f"B:{value.removeprefix('R:')}", 1)
            yield Finding(
                "signal-to-no-step", "warning", line, f"Nothing gets {name}: the script starts no step by srun.",
                "Without B: Slurm sends the signal to the steps only, not to the batch script and what it starts.",
                replace_line(line, fixed) if trap and text.has_line("signal") else (),
            )  # fmt: skip
        elif trap is not None and name in ("USR1", "USR2"):
            yield Finding(
                "signal-to-no-step", "warning", line, f"The handler of {name} in line {trap.line} never runs.",
                "Without B: Slurm sends the signal to the steps only, not to the batch script. With B: it goes to the batch"
                " script only.",
            )  # fmt: skip
        return
    if trap is None and (_reads_a_file(text) or re.search(r"^\s*exec\s+[\w$\"/.]", code, re.MULTILINE)):
        return  # the handler may be there, or the program takes the place of the script and gets the signal
    if trap is None:
        yield Finding(
            "signal-without-handler", "warning", line, f"The batch script does not handle {name}.",
            f"Without a handler {name} ends the script at once, before a checkpoint is written. Add one before the program"
            f" starts: trap '...' {name}",
        )  # fmt: skip
        return
    blocking = next((one for one in reversed(text.commands) if one.name in _BLOCKS and one.line > trap.line), None)
    waits = any(command.name == "wait" for command in text.commands)
    if blocking is not None and not blocking.in_background and not waits and _works_to_the_end(text, blocking):
        last = text.end_of(blocking.line)
        edits = (Edit(last, last, (f"{text.lines[last - 1]} &",)), *insert_before(last + 1, "wait $!"))
        alone = blocking.line == _last_line(text) and "#" not in text.lines[last - 1] and not text.is_cut_off
        edits = edits if alone else ()
        yield Finding(
            "handler-waits", "warning", blocking.line, f"The handler of {name} runs only after {blocking.name} has ended.",
            "bash runs a handler between two commands. Start the program in the background and wait for it, which a signal"
            " interrupts.",
            edits,
        )  # fmt: skip


def _handles(command: Command, signal: str) -> bool:
    return any(_signal_name(word) == signal for word in command.arguments[1:])


def _signal_name(word: str) -> str:
    """Returns the name of a signal without SIG: USR1 of SIGUSR1 and of 10."""
    return _NUMBERS.get(word, word.upper().removeprefix("SIG"))


def _reads_a_file(text: BatchText) -> bool:
    return any(
        command.name in ("source", ".") and not _ENVIRONMENT.search(" ".join(command.arguments))
        for command in text.commands
    )


def _works_to_the_end(text: BatchText, command: Command) -> bool:
    """Returns whether a command is the script's last one, but for messages: not one of a loop, between whose rounds a
    handler runs."""
    behind = [one for one in text.commands if one.line > command.line and one.program]
    return not text.lines[command.line - 1][:1].isspace() and all(one.name in _LAST_WORDS for one in behind)


def _last_line(text: BatchText) -> int:
    return text.body[-1][0] if text.body else 0


def _requeue(text: BatchText) -> Iterator[Finding]:
    line = text.line_of("requeue")
    if not _CONTINUES.search("\n".join(body for _, body in text.body)):
        yield Finding(
            "requeue-without-checkpoint", "note", line, "Nothing in the script continues from a checkpoint.",
            "A requeued job runs the script from its first line: the work since the job's start is done again.",
        )  # fmt: skip
    if text.value("output") and text.value("open-mode") != "append":
        yield Finding(
            "log-truncated", "note", line, "A requeued job empties its log.",
            "The output before the failure is lost. --open-mode=append keeps it.",
            insert_before(text.last_directive + 1, "#SBATCH --open-mode=append"),
        )  # fmt: skip
