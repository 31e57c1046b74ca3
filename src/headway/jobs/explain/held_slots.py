"""Explains slots that Slurm may not power up now: until a job has waited long enough, because of a price limit, or because
their machines can't be had. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headway.domain.cluster import Cluster
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.node_reasons import (
    CLOSED_REASON,
    HELD_FOR_PRICE,
    HELD_FOR_QUEUE_TIME,
    closed_until,
    is_held_slot,
)
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState
from headway.jobs.explain.phrases import Moment, Phrase, format_duration, join_phrases


def is_held(node: NodeState) -> bool:
    """Returns whether the node is such a slot."""
    return node.reason.startswith(CLOSED_REASON) or is_held_slot("+".join(node.states), node.reason)


def describe_held(job: JobState, nodes: Sequence[NodeState], cluster: Cluster) -> Phrase:
    """Returns for each group why its slots among these nodes have no machine yet, and when that may change for the job."""
    parts: list[str | Moment] = []
    for group in cluster.groups:
        here = [node for node in nodes if cluster.group_of.get(node.name) is group]
        if waits := [node.name for node in here if node.reason.startswith(HELD_FOR_QUEUE_TIME)]:
            at = (job.eligible_time or job.submit_time) + group.queue_time_s
            text = f"; {compress(waits)} {_word(waits)} created when a job has waited {format_duration(group.queue_time_s)}"
            parts += join_phrases(text, ": this one ", Moment(at))
        if over := [node.name for node in here if node.reason.startswith(HELD_FOR_PRICE)]:
            limit = f"{group.max_usd_per_hour.normalize():f}" if group.max_usd_per_hour is not None else "the limit"
            parts += [
                f"; {compress(over)} {_word(over)} not created: the price limit of group {group.name} is reached "
                f"(groups.{group.name}.usd_per_hour is {limit})"
            ]
        closed = [(node.name, found) for node in here if (found := closed_until(node.reason))]
        if closed:
            until, why = max(found for _, found in closed)
            names = [name for name, _ in closed]
            parts += join_phrases(f"; {compress(names)} can't be had now: {why}; next try ", Moment(until))
    return tuple(parts)


def _word(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
