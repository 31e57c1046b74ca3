"""Rules about what is left of a script for PBS, Grid Engine or LSF."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headway.domain.slurm.other_schedulers import COMMANDS, LSF_VARIABLES, PBS_VARIABLES, SGE_VARIABLES
from headway.lint.batch_text import BatchText
from headway.lint.findings import Finding, replace_line

_LINES = (
    (re.compile(r"#PBS\s+-"), "PBS", "sbatch translates some of these lines, and only in part; #SBATCH lines win."),
    (re.compile(r"#\$\s+-[a-zA-Z]"), "Grid Engine", "sbatch does not read them."),
    (re.compile(r"#BSUB\s+-"), "LSF", "sbatch does not read them."),
    (re.compile(r"#COBALT\s+-"), "Cobalt", "sbatch does not read them."),
)
_VARIABLES = {**PBS_VARIABLES, **SGE_VARIABLES, **LSF_VARIABLES}
_USED = re.compile(r"\$\{?(" + "|".join(sorted(_VARIABLES, key=len, reverse=True)) + r")\b")
# A test of whether one of these variables is set, or a value for the case that it is not.
_NAMES = "|".join(_VARIABLES)
_ASKED = re.compile(
    rf"-[nzv]\s+[\"']?\$?\{{?(?:{_NAMES})\b|\$\{{(?:{_NAMES}):?[-+?=]|(?:command -v|which|type)\s+(?:qsub|bsub|sbatch)\b"
)


def other_scheduler_rules(text: BatchText) -> Iterator[Finding]:
    """Yields the findings about lines, variables and commands of other schedulers."""
    for pattern, name, why in _LINES:
        numbers = [at for at, line in enumerate(text.lines[: text.head_lines], start=1) if pattern.match(line)]
        if numbers:
            count = f" and {len(numbers) - 1} more" * (len(numbers) > 1)
            yield Finding("other-scheduler", "warning", numbers[0], f"Lines of {name}: line {numbers[0]}{count}.", why)
    code = "\n".join(body for _, body in text.body)
    if _ASKED.search(code):
        return  # the script runs under several schedulers
    own = {name for command in text.commands for name in command.assigned}
    for number, line in enumerate(text.lines[text.head_lines :], start=text.head_lines + 1):
        found = None if line.lstrip().startswith("#") else _USED.search(line)
        if found is not None and found[1] not in own:
            better = _VARIABLES[found[1]]
            fixed = _USED.sub(lambda one: one[0].replace(one[1], _VARIABLES[one[1]] or one[1]), line)
            yield Finding(
                "other-scheduler-variable", "warning", number, f"Slurm does not set {found[1]}.",
                f"Slurm's variable is {better}." if better else "Slurm has the list of nodes: scontrol show hostnames.",
                replace_line(number, fixed) if fixed != line else (),
            )  # fmt: skip
    for command in text.commands:
        if command.name in COMMANDS:
            yield Finding(
                "other-scheduler-command", "warning", command.line, f"{command.name} is no command of Slurm.",
                f"Slurm's command is {COMMANDS[command.name]}, which takes other options.",
            )  # fmt: skip
