"""What the store keeps of a promotion: its gates, what their jobs need, and the states of these jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headway.jobs.promotions.gate_results import GateJobState
from headway.jobs.promotions.gates_file import Gates, read_gates
from headway.schemas.submission.job_field_types import GitIn
from headway.store.jobs.promotions import PromotionRow


@dataclass(frozen=True)
class StoredPromotion:
    """A promotion with the files of its gates' jobs. `mark` ends the names of their folders. `required`: the gates that the alias
    required when the promotion was asked for, {} for none; their jobs get no files of the person who promotes."""

    gates: Gates
    mark: str
    bundle: str
    git: GitIn | None
    required: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Returns what the store keeps."""
        return {
            "gates": self.gates.model_dump(mode="json", exclude_unset=True),
            "mark": self.mark,
            "bundle": self.bundle,
            "git": self.git.model_dump() if self.git else None,
            "required": dict(self.required),
        }

    @classmethod
    def of(cls, row: PromotionRow) -> StoredPromotion:
        """Returns the promotion of a row."""
        kept = row.document
        git = GitIn.model_validate(kept["git"]) if kept["git"] else None
        return cls(read_gates(kept["gates"]), kept["mark"], kept["bundle"], git, kept["required"])


def stored_jobs(jobs: Mapping[str, GateJobState]) -> dict[str, Any]:
    """Returns the states of jobs as the store keeps them."""
    return {name: asdict(job) for name, job in jobs.items()}


def jobs_of(row: PromotionRow) -> dict[str, GateJobState]:
    """Returns the states of a promotion's jobs."""
    return {name: GateJobState(**job) for name, job in row.jobs.items()}
