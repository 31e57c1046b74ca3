"""Hints for refusals of sbatch: what the person can do about its message. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headway.domain.cluster import Cluster
from headway.domain.slurm.sbatch_options import DOS_LINES_HINT
from headway.errors import Refused


@contextmanager
def with_sbatch_hints(cluster: Cluster, user: str) -> Iterator[None]:
    """Adds a hint to a refusal of sbatch that has none."""
    try:
        yield
    except Refused as error:
        if not error.hint:
            error.hint = sbatch_hint(error.message, cluster, user)
        raise


def sbatch_hint(message: str, cluster: Cluster, user: str) -> str:
    """Returns what to do about sbatch's message `message`, or "" when the message already says it."""
    teams = [team.name for team in cluster.teams if user in team.users]
    if "invalid account" in message.lower():
        mine = f"{user} is in {' and '.join(teams)}" if teams else f"{user} is in no team of {cluster.name}"
        return f"{mine}; {cluster.name} has {_list(team.name for team in cluster.teams)}"
    if "invalid qos" in message.lower():
        names = sorted({qos.name for qos in cluster.qos if any(qos.is_for(user, team) for team in teams)})
        return (
            f"{user} of {_list(teams)} may choose {_list(names)}"
            if names
            else "leave out --qos: a team's limits are its QOS"
        )
    if "invalid partition" in message.lower():
        return f"{cluster.name} has {_list(partition.name for partition in cluster.partitions)}"
    if "Requested node configuration is not available" in message or "Invalid generic resource" in message:
        return _node(cluster)
    if "group not permitted" in message:
        return f"{user} is in {_list(teams)}; the cluster file says which teams may use a partition"
    if "time limit is invalid" in message:
        return "no partition allows that much time: request less with --time"
    if "Job dependency problem" in message:
        return f"Slurm on {cluster.name} has no such job: it forgets jobs minutes after they end. Leave out ended jobs"
    if "accounting/QOS policy" in message:
        return f"a limit of {_list(teams)} is reached: run sshare and sacctmgr show qos on the login"
    if "DOS line breaks" in message:
        return DOS_LINES_HINT
    if "unrecognized option" in message and "--container" in message:
        return f"{cluster.name}'s image has no container plugin yet: headway apply updates it"
    return ""


def _node(cluster: Cluster) -> str:
    if not cluster.provider.boots_node_images:  # an existing machine may differ from its plan
        return f"run sinfo -N -o '%N %c %m %G' on the login: it lists the hardware of each node of {cluster.name}"
    kinds = []
    for group in cluster.groups:
        plan = group.plan
        gpus = f"{plan.gpus} GPUs, " if plan.gpus else "no GPU, "
        kinds.append(f"{group.nodes} nodes of {gpus}{plan.cpus} CPUs and {plan.memory_mib // 1024} GiB each")
    return f"{cluster.name} has {'; '.join(kinds)}"


def _list(words: Iterator[str] | list[str]) -> str:
    return ", ".join(words) or "none"
