"""The query for a list of jobs: filters and order, and how one is made from a request of the API. `search` compares jobs
with it. The fields of the request are `schemas.job_list.JobsQuery`; the query in the address of the queue's page is in
`web.views.queue.queue_address`."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.slurm.job_states import ENDED, JOB_KINDS, RUNNING, WAITING
from headway.errors import Refused
from headway.schemas.job_list import JobsQuery

JOB_STATES = sorted(ENDED | RUNNING | WAITING)


@dataclass(frozen=True, slots=True)
class QueueQuery:
    """Filters and order of a job list. An empty filter accepts everything; several values of one filter are
    alternatives."""

    kinds: frozenset[str] = frozenset({"running", "waiting"})
    states: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    node: str = ""
    array: int = 0  # only tasks of this array
    arrays_as_one: bool = False  # one job for all matching tasks of an array, the first in the order
    search: str = ""  # in number, name, user, account, partition, reason, nodes
    sort: str = ""  # a column's key, with "-" in front for descending; "": running jobs, then pending ones by priority
    limit: int = 100
    cursor: str = ""


def parse_queue_query(query: JobsQuery) -> QueueQuery:
    """Returns the request's filters and order as a QueueQuery. Raises Refused for an unknown job state."""
    meant = {word: [known for known in JOB_STATES if word and known.startswith(word.upper())] for word in query.state}
    for word, found in meant.items():
        if not found:
            raise Refused(
                f"unknown job state {word!r}", hint=f"use one of {', '.join(JOB_STATES)}, or its first letters"
            )
    states = frozenset(known for found in meant.values() for known in found)
    every = query.all or bool(query.state)
    return QueueQuery(
        kinds=frozenset(JOB_KINDS) if every else frozenset({"running", "waiting"}),
        states=states,
        users=frozenset(query.user),
        accounts=frozenset(query.team),
        partitions=frozenset(query.partition),
        node=query.node,
        search=query.q,
        sort=query.sort,
        limit=query.limit,
        cursor=query.cursor,
    )
