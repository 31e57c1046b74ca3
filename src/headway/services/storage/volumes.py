"""A cluster's volumes: the nodes that have them, free space and speed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from headway.changes.quota_changes import quota_fault
from headway.domain.cluster import Cluster
from headway.domain.incident import Incident
from headway.domain.slurm.nodes_and_jobs import NodeState
from headway.domain.storage.quotas import ObservedQuota
from headway.domain.storage.volume_space import VolumeSpace
from headway.errors import HeadwayError
from headway.schemas.storage.volumes import (
    MeasuredOut,
    QuotaUseOut,
    StorageOut,
    UnmountedNodeOut,
    VolumeOut,
    VolumeSpeedIn,
    VolumeSpeedOut,
)
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.store import VolumeSpeedRow

SPACE_MAX_AGE_S = 10.0  # of the cached sizes
_AWAY = frozenset({"DOWN", "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "UNKNOWN", "FUTURE"})


async def get_storage(state: AppState, who: Principal, name: str) -> StorageOut:
    """Returns each volume: the nodes on which it is not available, its free space, and its speed when last measured."""
    cluster = (await state.clusters.get(name))[1]
    usage: dict[str, VolumeSpace] = {}
    quotas: Mapping[str, ObservedQuota] = {}
    snapshot = await state.readings.snapshot(cluster)
    stale = snapshot.stale  # viewers do not contact a head again that did not answer
    try:
        if not stale:
            usage = {
                usage_row.path: usage_row for usage_row in await state.readings.volume_space(cluster, SPACE_MAX_AGE_S)
            }
            quotas = await state.readings.quotas(cluster) if cluster.storage.quotas else {}
    except (HeadwayError, TimeoutError, OSError) as error:
        stale = error.first_line if isinstance(error, HeadwayError) else f"{cluster.head} did not answer"
    speeds = await state.store.volume_speeds.of_cluster(name)
    nodes = [node for node in snapshot.nodes if _AWAY.isdisjoint(node.states)]
    incidents = await state.store.incidents.search(name, unfinished=True)
    volumes = [
        _volume(cluster, path, usage.get(path), speeds.get(path), nodes, incidents) for path in cluster.storage.paths
    ]
    for volume in volumes:
        if volume.path in cluster.storage.quotas and volume.path in quotas:
            volume.quota_fault = quota_fault(volume.path, quotas[volume.path])
            volume.quotas = _quotas_out(quotas[volume.path], who)
    return StorageOut(cluster=name, volumes=volumes, stale=stale)


async def measure_speed(state: AppState, who: Principal, name: str, request: VolumeSpeedIn) -> list[VolumeSpeedOut]:
    """Measures the speed of each volume from one machine, and stores it as the latest. The test files are removed."""
    _, cluster = await state.clusters.get(name)
    found = await state.backend.storage.measure_volumes(cluster, request.node, request.mib)
    now, node = state.clock(), request.node or cluster.head
    await state.store.volume_speeds.record(
        VolumeSpeedRow(
            name,
            speed.path,
            node,
            request.mib,
            now,
            speed.write_mib_s,
            speed.read_mib_s,
            speed.checkpoint_mib_s,
            speed.error,
        )
        for speed in found
    )
    await write_audit_line(state, who, "storage.bench", name, node=request.node, mib=request.mib)
    return list(found)


def _quotas_out(seen: ObservedQuota, who: Principal) -> list[QuotaUseOut]:
    """Returns the quotas that the person may see, the fullest first."""
    rows = [
        QuotaUseOut(user=user, used_bytes=quota.used, limit_bytes=quota.limit)
        for user, quota in seen.users.items()
        if user == who.user or who.may(Right.OPERATE_NODES)
    ]
    return sorted(rows, key=lambda row: (-row.used_bytes, row.user))


def _volume(
    cluster: Cluster,
    path: str,
    usage: VolumeSpace | None,
    speed: VolumeSpeedRow | None,
    nodes: list[NodeState],
    incidents: tuple[Incident, ...],
) -> VolumeOut:
    mounted = next((volume for volume in cluster.storage.volumes if volume.path == path), None)
    lost = list(_lost_by(path, nodes, incidents))
    return VolumeOut(
        path=path,
        type=mounted.type if mounted else "",
        source=mounted.source if mounted else "",
        read_only=mounted.read_only if mounted else False,
        size_bytes=usage.size if usage else None,
        free_bytes=usage.free if usage else None,
        used_bytes=None if usage is None or usage.size is None or usage.free is None else usage.size - usage.free,
        fault=usage.fault if usage else "",
        nodes=len(nodes) - len(lost),
        lost=lost,
        measured=MeasuredOut.model_validate(speed) if speed else None,
    )


def _lost_by(path: str, nodes: list[NodeState], incidents: tuple[Incident, ...]) -> Iterator[UnmountedNodeOut]:
    """Yields the nodes whose checks say that the volume is missing or unusable, with the text of their incident or
    drain reason."""
    named = re.compile(rf"(?<![\w/.-]){re.escape(path)}(?![\w/.-])")
    incident_texts = {incident.node: incident.what for incident in incidents if named.search(incident.what)}
    for node in nodes:
        why = incident_texts.get(node.name) or (node.reason if not node.usable and named.search(node.reason) else "")
        if why:
            yield UnmountedNodeOut(node=node.name, why=why)
