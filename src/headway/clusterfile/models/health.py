"""The section `health` of the cluster file."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headway.domain.slurm.nodes_and_jobs import FLAKY_NODES
from headway.validation.field_types import (
    FileSection,
    XidClass,
    XidCode,
)


class FlakyNodesPart(FileSection):
    """Flaky nodes, which fail repeatedly, are kept out of service."""

    score: int = Field(
        8,
        ge=1,
        le=1000,
        description="Score at which a node is kept out of service: GPU reset or reboot 1, drain 2, rma or hands_on 3.",
    )
    days: int = Field(14, ge=1, le=365, description="Number of days in which incidents count.")
    reserve: bool = Field(
        False,
        description=f"true: keep the node for jobs with --reservation={FLAKY_NODES}; take it out of service at twice the score.",
    )


_OWN_TIME = 'A job sets its own value with --comment "{0}=SECONDS"; 0 turns the check off.'


class StallPart(FileSection):
    """Detection of a stalled job: no progress report, no output, no useful GPU work."""

    after: int = Field(
        1800,
        ge=0,
        le=604800,
        description=f"Seconds without progress. {_OWN_TIME.format('stall')}",
    )
    requeue: bool = Field(False, description="Requeue the job; otherwise only notify its owner.")


class IdlePart(FileSection):
    """Detection of a job with idle GPUs."""

    after: int = Field(
        7200,
        ge=0,
        le=604800,
        description=f"Seconds without GPU work. {_OWN_TIME.format('idle')}",
    )
    cancel: bool = Field(False, description="Cancel the job; otherwise only notify its owner.")


FABRIC_TEST_EVERY_S = {"daily": 86400, "weekly": 7 * 86400, "monthly": 30 * 86400}


class HealthPart(FileSection):
    """Reactions to faults."""

    xid: dict[XidCode, XidClass] = Field(
        default_factory=dict,
        max_length=1000,
        description="Classes of GPU error codes that replace those of Headway's table.",
        examples=[{"63": "drain"}],
    )
    act: bool = Field(True, description="false: only record incidents; do not drain, fence, requeue or repair.")
    tries: int = Field(
        3,
        ge=0,
        le=10,
        description="Number of repairs that are tried; then the node is out of service until you return it.",
    )
    flaky_nodes: FlakyNodesPart = Field(
        default_factory=FlakyNodesPart, description="Flaky nodes: nodes that fail repeatedly."
    )
    silent_share: float = Field(
        0.5,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="If this share of all nodes falls silent at once, Headway assumes a network fault and changes no node.",
    )
    warning: int = Field(
        60,
        ge=0,
        le=3600,
        description="Seconds between the signal of a job's --signal and its requeue.",
    )
    stall: StallPart = Field(default_factory=StallPart, description="Jobs that stall.")
    idle: IdlePart = Field(default_factory=IdlePart, description="Jobs with idle GPUs.")
    fabric_test: Literal["daily", "weekly", "monthly"] | None = Field(
        None, description="How often idle nodes measure the fabric (headway test fabric); jobs do not wait for it."
    )
