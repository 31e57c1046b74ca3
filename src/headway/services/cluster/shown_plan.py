"""Plans that were just shown, and the fingerprint of the document that they belong to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan that was just shown, so that apply need not read every machine again."""

    document: str  # fingerprint of the document
    digest: str
    asks: int
    at: float
    busy: str = ""  # nodes with jobs that would be removed


def fingerprint(value: Mapping[str, Any]) -> str:
    """Returns a hash that is equal for documents with equal content."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
