"""Planned starts, a reservation and a maintenance window of a cluster that the pages show."""

from __future__ import annotations

import time
from dataclasses import replace

from headway.domain.slurm.nodes_and_jobs import SPARES, Reservation
from headway.services.read_model.snapshot import Snapshot

HOUR_S = 3600


def planned(known: Snapshot) -> Snapshot:
    """Returns the reading with them."""
    now = int(time.time())
    nodes = tuple(node.name for node in known.nodes)
    jobs, starts = [], 0
    for job in known.jobs:
        if job.state == "PENDING" and starts < 2 and "Dependency" not in job.reason:
            starts += 1
            start, where = now + starts * HOUR_S, nodes[starts - 1 : starts - 1 + max(1, job.node_count)]
            job = replace(job, start_time=start, scheduled_nodes=where, time_limit_s=2 * HOUR_S)
        jobs.append(job)
    kept = (
        Reservation("cooling", nodes[:3], ("root",), ("MAINT", "IGNORE_JOBS"), now + 8 * HOUR_S, now + 12 * HOUR_S),
        Reservation("course", nodes[3:4], ("alice", "bob"), (), now + 3 * HOUR_S, now + 5 * HOUR_S),
        Reservation(SPARES, nodes[-1:], ("root",), ("IGNORE_JOBS",), now - HOUR_S, 4102444800),
    )
    return replace(known, jobs=tuple(jobs), reservations=kept)
