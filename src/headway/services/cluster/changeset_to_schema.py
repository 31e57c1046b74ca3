"""Converts a ChangeSet to the schema of the API. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from headway.domain.changeset import ASK_FROM, Change, ChangeSet
from headway.domain.cluster import Cluster
from headway.errors import Fault
from headway.schemas.base import FaultOut
from headway.schemas.clusters import ChangeOut, ChangeSetOut, DifferenceOut


def change_out(change: Change) -> ChangeOut:
    """Returns one change as the API shows it."""
    return ChangeOut(
        kind=change.kind,
        where=change.where,
        what=change.what,
        why=change.why,
        disturbs=change.disturbs.value,
        diff=list(change.diff),
    )


def changeset_out(changes: ChangeSet, cluster: Cluster, digest: str, warnings: Iterable[Fault]) -> ChangeSetOut:
    """Returns the plan of a cluster file: the changes, their number that people must confirm (`disturbing`), the digest
    that `apply` repeats, and the price of the smallest size in USD per hour. Where machines are rented, warnings say their
    prices instead."""
    return ChangeSetOut(
        cluster=changes.cluster,
        changes=[change_out(change) for change in changes.changes],
        why_empty=changes.why_empty,
        disturbing=sum(change.disturbs in ASK_FROM for change in changes.changes),
        digest=digest,
        warnings=[FaultOut.model_validate(fault) for fault in warnings],
        price_usd_per_hour="" if cluster.rents_machines else f"{cluster.min_usd_per_hour:.2f}",
        differences=[DifferenceOut(**asdict(difference)) for difference in changes.differences],
    )
