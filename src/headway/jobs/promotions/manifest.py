"""The statement about a promoted version: an in-toto statement whose subjects are the version's files. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from headway.jobs.promotions.gate_results import GateResult
from headway.signed_statement import STATEMENT

PREDICATE_TYPE = "urn:headway:model-promotion:v1"


@dataclass(frozen=True)
class Source:
    """Where a version comes from. `run`: its run in MLflow; `job` the job that logged it (0: none of the cluster). Code is a
    commit, or the digest of the job's files. Datasets and environments have name, version and sha256."""

    run: str = ""
    job: int = 0
    user: str = ""
    commit: str = ""
    dirty: bool = False
    files: str = ""
    container: str = ""
    datasets: Sequence[Mapping[str, Any]] = ()
    environments: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Promoted:
    """A promotion, as its manifest tells it. `asked_at`, `promoted_at`: Unix seconds."""

    id: str
    cluster: str
    team: str
    model: str
    version: int
    alias: str
    person: str
    asked_at: float
    promoted_at: float
    former: int | None
    source: Source
    gates: Sequence[GateResult] = field(default_factory=tuple)


def promotion_statement(promoted: Promoted, files: Mapping[str, str]) -> dict[str, Any]:
    """Returns the statement. `files`: SHA-256 by path."""
    source = promoted.source
    return {
        "_type": STATEMENT,
        "subject": [{"name": path, "digest": {"sha256": files[path]}} for path in sorted(files)],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "promotion": promoted.id,
            "model": {
                "cluster": promoted.cluster,
                "team": promoted.team,
                "name": promoted.model,
                "version": promoted.version,
                "alias": promoted.alias,
                "former": promoted.former,
            },
            "source": {
                "run": source.run,
                "job": source.job,
                "user": source.user,
                "code": {"commit": source.commit, "dirty": source.dirty, "files": source.files},
                "container": source.container,
                "datasets": [_version(one) for one in source.datasets],
                "environments": [_version(one) for one in source.environments],
            },
            "gates": [asdict(gate) for gate in promoted.gates],
            "person": promoted.person,
            "asked_at": promoted.asked_at,
            "promoted_at": promoted.promoted_at,
        },
    }


def _version(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("name", "version", "sha256") if name in found}
