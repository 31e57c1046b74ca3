"""What differs between two jobs: what was submitted, and what it was made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff

from headway.schemas.lineage.lineage import LineageOut
from headway.schemas.trainings import DifferenceOut, TrainingComparisonOut
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.lineage import get_lineage
from headway.services.jobs.trainings.training_list import values_out

_MAX_LINES = 500  # of a difference
_NOT_SET = "not set"


async def compare_trainings(
    state: AppState, who: Principal, name: str, first: int, second: int
) -> TrainingComparisonOut:
    """Returns what differs between two jobs that were submitted through Headway. Raises NotFound, and NotAllowed for a job that
    the person may not look into."""
    one, other = await get_lineage(state, who, name, first), await get_lineage(state, who, name, second)
    rows = [await state.store.trainings.get(name, number) for number in (first, second)]
    values = [values_out(row.metrics) if row else {} for row in rows]
    found = list(compare_lineages(one, other))
    return TrainingComparisonOut(
        first=first,
        second=second,
        differences=[each for each in found if each.first != each.second or each.lines],
        same=[each.what for each in found if each.first == each.second and not each.lines],
        metrics={metric: (values[0].get(metric), values[1].get(metric)) for metric in {**values[0], **values[1]}},
    )


def compare_lineages(one: LineageOut, other: LineageOut) -> Iterator[DifferenceOut]:
    """Yields everything that was compared; equal things have equal texts and no lines."""
    yield _texts("script", one.script, other.script)
    yield DifferenceOut(what="arguments", first=" ".join(one.script_args), second=" ".join(other.script_args))
    yield DifferenceOut(what="sbatch options", first=" ".join(one.sbatch_args), second=" ".join(other.sbatch_args))
    yield from _maps("variable", one.env, other.env)
    yield DifferenceOut(what="commit", first=_commit(one), second=_commit(other))
    yield DifferenceOut(what="files", first=one.bundle, second=other.bundle)
    yield DifferenceOut(what="launcher", first=one.launcher, second=other.launcher)
    yield DifferenceOut(what="container", first=_container(one), second=_container(other))
    yield from _maps("environment", _versions(one.environments), _versions(other.environments))
    yield from _maps("dataset", _versions(one.datasets), _versions(other.datasets))
    yield DifferenceOut(what="partition", first=one.partition, second=other.partition)
    yield DifferenceOut(what="nodes", first=one.nodes, second=other.nodes)
    yield DifferenceOut(what="GPUs", first=str(one.gpus), second=str(other.gpus))


def _texts(what: str, first: str, second: str) -> DifferenceOut:
    lines = list(unified_diff(first.splitlines(), second.splitlines(), lineterm="", n=1))[2:]
    more = [f"... and {len(lines) - _MAX_LINES} further lines"] if len(lines) > _MAX_LINES else []
    return DifferenceOut(what=what, lines=[*lines[:_MAX_LINES], *more])


def _maps(what: str, first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[DifferenceOut]:
    """Yields one difference for each name, or one without a name if both are empty."""
    for name in sorted({*first, *second}):
        yield DifferenceOut(what=f"{what} {name}", first=first.get(name, _NOT_SET), second=second.get(name, _NOT_SET))
    if not first and not second:
        yield DifferenceOut(what=f"{what}s")


def _versions(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Returns version and digest by name; several versions of one name together."""
    found: dict[str, str] = {}
    for row in rows:
        digest = f" (sha256 {row['sha256'][:12]})" if row.get("sha256") else ""
        text = f"{row.get('version', '')}{digest}"
        found[row["name"]] = f"{found[row['name']]}, {text}" if row["name"] in found else text
    return found


def _commit(lineage: LineageOut) -> str:
    git = lineage.git
    return f"{git.commit}{' with uncommitted changes' if git.dirty else ''}" if git else ""


def _container(lineage: LineageOut) -> str:
    return " ".join(part for part in (lineage.container_image, lineage.container_digest) if part)
