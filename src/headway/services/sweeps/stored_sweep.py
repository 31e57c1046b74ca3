"""What the store keeps of a sweep: its file, and what its trials need when they are submitted later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway.jobs.sweeps.sweep_file import Sweep, read_sweep
from headway.schemas.submission.job_field_types import GitIn
from headway.store import SweepRow


@dataclass(frozen=True)
class StoredSweep:
    """A sweep with the files of its trials. `mark` ends the names of the trials' folders. `usd_per_hour`, `gpus`: of one trial,
    as they were when the sweep began."""

    sweep: Sweep
    mark: str
    bundle: str
    git: GitIn | None
    usd_per_hour: float | None
    gpus: float

    def document(self) -> dict[str, Any]:
        """Returns what the store keeps."""
        return {
            "file": self.sweep.model_dump(mode="json", exclude_unset=True),
            "mark": self.mark,
            "bundle": self.bundle,
            "git": self.git.model_dump() if self.git else None,
            "usd_per_hour": self.usd_per_hour,
            "gpus": self.gpus,
        }

    @classmethod
    def of(cls, row: SweepRow) -> StoredSweep:
        """Returns the sweep of a row."""
        kept = row.document
        git = GitIn.model_validate(kept["git"]) if kept["git"] else None
        return cls(read_sweep(kept["file"]), kept["mark"], kept["bundle"], git, kept["usd_per_hour"], kept["gpus"])
