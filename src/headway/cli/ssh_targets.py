"""The cluster and machine that the words of `headway ssh` and `headway cp` name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from headway.cli import common
from headway.errors import Conflict, NotFound

if TYPE_CHECKING:
    from headway.schemas.clusters import AccessOut
    from headway.sdk.client import Client


def resolve_target(api: Client, words: list[str]) -> tuple[AccessOut, str]:
    """Returns (access of the cluster, host): a node's name alone identifies its cluster. Raises NotFound."""
    if len(words) > 2:
        raise typer.BadParameter(f"unexpected argument {words[2]!r}; put a command after --")
    if not words:
        access = api.clusters.ssh_access(common.choose_cluster(api, None))
        return access, access.cluster
    common.require_cluster_name(words[0])
    if len(words) == 1:
        return find_access(api, words[0], [c.name for c in api.clusters.list()]), words[0]
    cluster, node = words
    access = api.clusters.ssh_access(cluster)
    if node not in _machines(access):
        raise NotFound(f"{cluster} has no machine {node}", hint=f"headway nodes {cluster}")
    return access, node


def find_access(api: Client, host: str, clusters: list[str]) -> AccessOut:
    """Returns the access of the cluster that is named `host` or has a machine of that name. Raises NotFound."""
    if host in clusters:
        return api.clusters.ssh_access(host)
    unready: Conflict | None = None
    for cluster in sorted((c for c in clusters if host.startswith(f"{c}-")), key=len, reverse=True):
        try:
            access = api.clusters.ssh_access(cluster)
        except Conflict as error:  # it has no machine yet
            unready = error
            continue
        if host in _machines(access):
            return access
    raise unready or NotFound(f"no cluster or node is named {host}", hint="headway ls")


def _machines(access: AccessOut) -> set[str]:
    return {access.head, *access.machines}
