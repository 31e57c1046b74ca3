"""What the store keeps of a service besides its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.jobs.serving.service_file import Service, read_service
from headway.schemas.submission.job_field_types import GitIn
from headway.store import ReplicaRow, ServiceRow


@dataclass(frozen=True)
class StoredService:
    """A service with the files of its replicas. `mark` ends the names of the replicas' folders."""

    service: Service
    mark: str
    bundle: str
    git: GitIn | None

    def document(self) -> dict[str, Any]:
        """Returns what the store keeps."""
        return {
            "file": self.service.model_dump(mode="json", exclude_unset=True),
            "mark": self.mark,
            "bundle": self.bundle,
            "git": self.git.model_dump() if self.git else None,
        }

    @classmethod
    def of(cls, row: ServiceRow) -> StoredService:
        """Returns the service of a row."""
        return cls.read(row.document)

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> StoredService:
        """Returns the service of a stored document."""
        git = GitIn.model_validate(kept["git"]) if kept["git"] else None
        return cls(read_service(kept["file"]), kept["mark"], kept["bundle"], git)


def server_name(replica: ReplicaRow) -> str:
    """Returns the name of a replica's server in the proxy."""
    return f"r{replica.number}"
