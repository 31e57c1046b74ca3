"""Lints a batch script with what is known of a cluster."""

from __future__ import annotations

import asyncio

from headway.domain.cluster import Cluster
from headway.domain.dataset import FOLDER as DATASETS
from headway.jobs.submission.node_capacity import NodeCapacity
from headway.lint.rules import lint_script
from headway.lint.site_rules import Site
from headway.schemas.submission.submission_check import LintFindingOut
from headway.schemas.submission.submit_request import SubmitIn
from headway.services.app_state import AppState
from headway.services.storage.environments import environment_choices


async def lint_submission(
    state: AppState, cluster: Cluster, request: SubmitIn, user: str, offer: NodeCapacity
) -> list[LintFindingOut]:
    """Returns the findings in the script of a submission; none for one without a script (--wrap)."""
    if request.script is None:
        return []
    site = lint_site(cluster, user, offer, await environment_choices(state, cluster.name))
    # In a thread: a script may have a megabyte.
    found = await asyncio.to_thread(lint_script, request.script, site, flags=request.args)
    return [LintFindingOut.model_validate(finding) for finding in found]


def lint_site(cluster: Cluster, user: str, offer: NodeCapacity, environments: list[str]) -> Site:
    """Returns what lint needs to know of the cluster for a user."""
    caps = {
        team.name: f"{team.gpu_hours.hours.normalize():f} GPU-hours a {team.gpu_hours.per}"
        for team in cluster.teams
        if user in team.users and team.gpu_hours is not None
    }
    return Site(
        name=cluster.name,
        partitions=tuple(partition.name for partition in cluster.partitions),
        folders=(*cluster.storage.paths, DATASETS),
        environments=[name for name in environments if "@" not in name],
        capped_teams=caps,
        node_memory_mib=offer.memory_mib,
    )
