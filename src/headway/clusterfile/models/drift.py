"""drift: comparisons of the running cluster with its file."""

from __future__ import annotations

from pydantic import Field

from headway.domain.cluster import DriftRule
from headway.validation.field_types import UNLIMITED, FileSection, Seconds


class DriftPart(FileSection):
    """Comparisons of the running cluster with its file. They find what was changed by hand."""

    check: Seconds = Field(
        21_600,
        description="Interval, in a Slurm time format; infinite: never (default: every 6 hours).",
        examples=["1:00:00"],
    )
    repair: bool = Field(
        False, description="Apply the file again if the cluster differs and no job or session would be disturbed."
    )


def resolve_drift(part: DriftPart) -> DriftRule:
    """Returns the rule; `check: infinite` becomes 0."""
    return DriftRule(0 if part.check == UNLIMITED else part.check, part.repair)
