"""A trial as a job: the command with its parameters. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from headway.jobs.sweeps.sweep_file import Sweep, Value
from headway.schemas.submission.job_field_types import GitIn
from headway.schemas.submission.run_request import RunIn

ALL_ARGUMENTS = "{args}"
_OF_SWEEP = {
    "name",
    "run",
    "method",
    "metric",
    "parameters",
    "trials",
    "parallel",
    "seed",
    "early_stopping",
    "max_cost",
}


def trial_run(
    sweep: Sweep, number: int, parameters: Mapping[str, Value], *, sweep_id: str, bundle: str, git: GitIn | None
) -> RunIn:
    """Returns the run of a trial. Its command has {NAME} replaced by parameters, and {args} by --NAME=VALUE of each; its
    environment has all as JSON in HEADWAY_PARAMETERS."""
    env = {
        **sweep.env,
        "HEADWAY_SWEEP": sweep_id,
        "HEADWAY_TRIAL": str(number),
        "HEADWAY_PARAMETERS": json.dumps(dict(parameters)),
    }
    return RunIn.model_validate(
        {
            **sweep.model_dump(exclude=_OF_SWEEP),  # the other fields have the names of a run's
            "argv": trial_command(sweep.run, number, parameters),
            "name": f"{sweep.name}-{number}",
            "env": env,
            "bundle": bundle,
            "git": git,
        }
    )


def trial_command(words: list[str], number: int, parameters: Mapping[str, Value]) -> list[str]:
    """Returns the words of the command. Braces with any other text stay as they are."""
    texts = {name: value_text(value) for name, value in parameters.items()} | {"trial": str(number)}
    pattern = re.compile("|".join(re.escape("{" + name + "}") for name in texts))
    found: list[str] = []
    for word in words:
        if word == ALL_ARGUMENTS:
            found += [f"--{name}={texts[name]}" for name in parameters]
        else:
            found.append(pattern.sub(lambda match: texts[match[0][1:-1]], word))
    return found


def value_text(value: Value) -> str:
    """Returns a value as commands and tables show it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
