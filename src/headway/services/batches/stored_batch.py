"""What the store keeps of a batch besides its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headway.schemas.submission.batches import BatchIn
from headway.store import BatchRow


@dataclass(frozen=True)
class StoredBatch:
    """A batch with what its job needs. `mark` ends the name of the job's folder; `rows` is the path of the input, `folder` that
    of the state, `worker` that of the worker's program."""

    request: BatchIn
    mark: str
    rows: str
    folder: str
    worker: str
    usd_per_hour: float | None  # of one worker

    def document(self) -> dict[str, Any]:
        """Returns what the store keeps."""
        return {**asdict(self), "request": self.request.model_dump(mode="json")}

    @classmethod
    def of(cls, row: BatchRow) -> StoredBatch:
        """Returns the batch of a row."""
        kept: Mapping[str, Any] = row.document
        return cls(**{**kept, "request": BatchIn.model_validate(kept["request"])})
