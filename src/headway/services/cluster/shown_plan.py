"""Plans that were just shown, their digest, and the fingerprint of the document that they belong to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.domain.changeset import ChangeSet


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan that was just shown, so that apply need not read every machine again."""

    document: str  # fingerprint of the document
    digest: str
    disturbing: int
    at: float
    busy: str = ""  # nodes with jobs that would be removed


def document_digest(value: Mapping[str, Any]) -> str:
    """Returns a hash that is equal for documents with equal content."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def plan_digest(changes: ChangeSet) -> str:
    """Returns a hash that is equal for equal plans."""
    rows: list[Any] = [[c.kind, c.where, c.what, c.why, c.disturbs.value, list(c.diff)] for c in changes.changes]
    return hashlib.sha256(json.dumps([changes.cluster, rows]).encode()).hexdigest()[:32]
