"""Changes of models that jobs may not make, because promotions answer for them: of aliases, names and versions, and of the run
that a logged model comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import NotAllowed
from headway.services.app_state import AppState
from headway.services.mlflow.journal_state import JournalState

_ALIAS = "registered-models/alias"
_LOGGED = "logged-models"
_OF_WHOLE_MODEL = ("registered-models/rename", "registered-models/delete")
_OF_VERSION = "model-versions/delete"
_HINT = "headway model promote"


async def check_change(
    state: AppState, cluster: Cluster, job: JobState, known: JournalState, name: str, sent: Sequence[tuple[str, Any]]
) -> None:
    """Checks a change of a job. `name`: of the request, such as registered-models/alias. `sent`: its fields, in the query and in
    the body; where a field is in both, all its values are checked. Raises NotAllowed."""

    def values(*fields: str) -> list[str]:
        return [str(value) for field, value in sent if field in fields]

    promotions = state.store.promotions
    if name == _LOGGED:
        for run in values("source_run_id", "sourceRunId"):
            if run and run not in known.runs:
                raise NotAllowed(f"this job can't log a model for run {run[:60]}: it did not create that run")
    if name not in (_ALIAS, _OF_VERSION, *_OF_WHOLE_MODEL):
        return
    rows = await promotions.promoted(cluster.name, job.account, values("name", "new_name", "newName"))
    aliases, versions = values("alias"), values("version")
    for row in rows:
        if name == _ALIAS and row.alias in aliases:
            raise NotAllowed(f"jobs can't change alias {row.alias} of {row.model}: a promotion has set it", hint=_HINT)
        if name in _OF_WHOLE_MODEL:
            raise NotAllowed(f"jobs can't rename or delete model {row.model}: a promotion has set alias {row.alias}")
        if name == _OF_VERSION and str(row.version) in versions:
            raise NotAllowed(f"jobs can't delete {row.label}: a promotion has made it {row.alias}")
    if name == _ALIAS:
        for alias in await promotions.aliases_with_gates(cluster.name, job.account, aliases):
            raise NotAllowed(f"jobs can't change alias {alias}: team {job.account} requires gates for it", hint=_HINT)
