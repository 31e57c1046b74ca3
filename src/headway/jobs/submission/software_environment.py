"""Software environments of jobs (`--environment`): lines of a batch script that make a job use one, and the environments
that a job names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from headway.domain.environment import FOLDER, NAME_PATTERN, EnvironmentVersion, parse_label
from headway.errors import Fault, Refused
from headway.jobs.submission.requested_resources import RequestedResources, requested_resources
from headway.jobs.submission.user_script_lines import insert_lines
from headway.schemas.submission.submit_request import SubmitIn

FLAG = "--environment"
_PATH = re.compile(rf"(?<![\w.-]){FOLDER}/({NAME_PATTERN})/([1-9][0-9]{{0,8}})(?![\w.-])")
_MODULE = re.compile(r"^[ \t]*(?:module[ \t]+(?:load|add|try-load)|ml(?:[ \t]+load)?)[ \t]+([^#;&|\n]+)", re.MULTILINE)
_MODULE_NAME = re.compile(rf"({NAME_PATTERN})(?:/([1-9][0-9]{{0,8}}))?")


def environment_faults(environment: str, wants: Sequence[RequestedResources]) -> Iterator[Fault]:
    """Yields what is wrong with a job's environment. `wants` are the resources of each component of the job."""
    if environment and any("container-image" in want.options for want in wants):
        yield Fault(FLAG, "a container has its own Python", f"leave out {FLAG} or the container image")


def environment_lines(environment: str) -> list[str]:
    """Returns the lines of the script that make NAME@VERSION the job's Python. [] for "". Raises ValueError for any
    other word, because it becomes part of a script."""
    if not environment:
        return []
    name, number = parse_label(environment)
    place = f"{FOLDER}/{name}/{number}"
    gone = f"headway: environment {environment} is not on $(uname -n): it was removed, or {FOLDER} is not mounted"
    return [
        f'[ -x {place}/bin/python ] || {{ echo "{gone}" >&2; exit 1; }}',
        f"export PATH={place}/bin:$PATH VIRTUAL_ENV={place} PYTHONNOUSERSITE=1 HEADWAY_ENVIRONMENT={environment}",
    ]


def with_environment(request: SubmitIn) -> SubmitIn:
    """Returns the request with a script that uses its environment, NAME@VERSION. Raises Refused where the script can't
    do that."""
    if not request.environment:
        return request
    if faults := list(environment_faults(request.environment, requested_resources(request))):
        raise Refused("\n".join(map(str, faults)))
    script = insert_lines(request, FLAG, environment_lines(request.environment))
    return request.model_copy(update={"script": script, "environment": ""})


def name_environments(texts: Iterable[str]) -> bool:
    """Returns whether these texts may name versions of environments."""
    return any(_PATH.search(text) or _MODULE.search(text) for text in texts)


def used_environments(texts: Iterable[str], versions: Sequence[EnvironmentVersion]) -> list[EnvironmentVersion]:
    """Returns the versions that these texts name, by a path or by `module load NAME[/VERSION]`; a name without a
    version means the latest, as for the module command."""
    found: dict[str, EnvironmentVersion] = {}
    for text in texts:
        paths = {(match[1], match[2]) for match in _PATH.finditer(text)}
        words = [word for line in _MODULE.finditer(text) for word in line[1].split()]
        modules = {(match[1], match[2] or "") for word in words if (match := _MODULE_NAME.fullmatch(word))}
        for name, number in sorted(paths | modules):
            mine = [one for one in versions if one.name == name and number in ("", str(one.number))]
            found.update({one.label: one for one in mine[-1:]})
    return list(found.values())
