"""Computes the desired state: from a resolved cluster, its site and its users to files, units, folders and accounts per role."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from headway.changes.cluster_changes import DesiredState
from headway.changes.machine_changes import DesiredMachine
from headway.changes.slurm_accounts import desired_accounts
from headway.cluster.agent_bundle import bundled_files
from headway.cluster.context import ClusterContext
from headway.cluster.keys import secrets as cluster_secrets
from headway.cluster.observe import replaced_machines
from headway.domain.cluster import SHARED_FOLDER, Cluster, OwnedSite, Site
from headway.images import recipe
from headway.providers.base import Placement
from headway.render.files import render_files
from headway.render.monitoring import prometheus
from headway.render.slurm.auxiliary_conf import SHARED_IMAGES
from headway.render.system.unit_list import units_by_role


async def read_site(
    cluster: Cluster,
    env: ClusterContext,
    place: Placement,
    members: tuple[str, ...] | None = None,
    *,
    give_uids: bool = True,
    known_uids: Mapping[str, int] | None = None,
) -> Site:
    """Joins the provider's addresses with the people's uids, departed ones included. `members`: slots that have or get a
    machine; None: all. A plan gives no uid away: they are never used again. `known_uids`: by which machines one owns know
    people who have none here yet."""
    now = [user.name for user in cluster.users]
    ever = await env.store.linux_users.of_cluster(cluster.name)
    departed = sorted(ever - set(now))
    uids = await env.store.linux_users.assign_uids([*now, *departed], give=give_uids, wishes=known_uids)
    keys = await _host_keys(cluster, env)
    return Site(
        subnet=place.subnet,
        gateway=place.gateway,
        head_address=place.addresses[cluster.head],
        addresses=place.addresses,
        uids=uids,
        departed=tuple(departed),
        simulated_gpus=cluster.simulated_gpus,
        gpu_devices=place.gpu_devices,
        real_cpus=place.real_cpus,
        real_memory_mib=place.real_memory_mib,
        host_keys=keys,
        real_tmp_mib=place.real_tmp_mib,
        members=members,
        found=place.found,
        own=await _own_site(cluster, env, place.own),
        cgroup_v1=place.cgroup_v1,
    )


async def _own_site(cluster: Cluster, env: ClusterContext, own: OwnedSite | None) -> OwnedSite | None:
    """With the key that Headway signs in with where the inventory names none, once there is one."""
    private = (await env.store.secrets.of_cluster(cluster.name)).get("bootstrap_key") if own else None
    if own is None or private is None:
        return own
    mine = cluster_secrets.public_key(private)
    return replace(own, operators={user: tuple(key or mine for key in keys) for user, keys in own.operators.items()})


async def _host_keys(cluster: Cluster, env: ClusterContext) -> dict[str, str]:
    """Machines' public keys, by which the parts of a job trust each other: ours to give, or those of one's own machines."""
    if cluster.hosts:
        anew = await replaced_machines(env, cluster.name)
        found = {one.name: one.host_key for one in await env.provider.list(cluster.name) if one.name not in anew}
    else:
        have = await env.store.secrets.of_cluster(cluster.name)
        names = {name: cluster_secrets.host_key_name(name) for name in cluster.machine_names}
        found = {name: cluster_secrets.public_key(have[key]) for name, key in names.items() if key in have}
    return {name: " ".join(key.split()[:2]) for name, key in found.items() if key}


async def render_desired_state(cluster: Cluster, site: Site, secrets: Mapping[str, str]) -> DesiredState:
    """Rendering is pure but long for thousands of nodes, so it runs beside the event loop."""
    return await asyncio.to_thread(build_desired_state, cluster, site, secrets)


def build_desired_state(cluster: Cluster, site: Site, secrets: Mapping[str, str]) -> DesiredState:
    """Pure: everything the cluster should be."""
    rendered = {role: {**files, **bundled_files()} for role, files in render_files(cluster, site).items()}
    role_units = units_by_role(cluster, site)
    digests = cluster_secrets.secret_digests(secrets)
    head_dirs = [(cluster.state_folder, "slurm", 0o700), *prometheus.DIRS]
    if cluster.containers == "builtin":  # from the start: scratch is everybody's, and whoever is first has the name
        head_dirs.append((str(PurePosixPath(cluster.storage.scratch, SHARED_IMAGES)), "root", 0o755))
    if not cluster.provider.volumes_on_server:  # for the versions of datasets
        head_dirs.append((str(PurePosixPath(cluster.storage.scratch, SHARED_FOLDER)), "root", 0o755))
        head_dirs += [(one.source, "root", 0o755) for one in cluster.storage.datasets if one.versioned]
    homes = []
    for user in cluster.users:
        uid = site.uids[user.name]
        homes.append((str(PurePosixPath(cluster.storage.home, user.name)), user.name, uid))
        head_dirs.append((str(PurePosixPath(cluster.storage.scratch, user.name)), str(uid), 0o700))
    more = _software(cluster, site)
    roles = {
        "head": DesiredMachine.build(
            rendered["head"],
            digests,
            role_units["head"],
            **more["head"],
            dirs=tuple(head_dirs),
            homes=tuple(homes),
            departed=site.departed,
        ),
    }
    for name in cluster.heads[1:]:
        role = cluster.role_of(name)
        roles[role] = DesiredMachine.build(
            rendered[role], digests, role_units[role], **more["head"], departed=site.departed
        )
    for role in map(cluster.role_of_group, cluster.groups):
        roles[role] = DesiredMachine.build(
            rendered[role], digests, role_units[role], **more["node"], departed=site.departed
        )
    return DesiredState(cluster, roles, desired_accounts(cluster), site.members)


def _software(cluster: Cluster, site: Site) -> dict[str, dict[str, Any]]:
    """What machines one owns need that no image brings."""
    if site.own is None:
        return {"head": {}, "node": {}}
    stamp, nfs = recipe.own_parts_archive()[1], bool(site.own.nfs)
    return {
        role: {"packages": recipe.packages_for_role(cluster.image, role, nfs=nfs), "parts": stamp}
        for role in ("head", "node")
    }
