"""The request with which a provider creates a machine."""

from __future__ import annotations

from collections.abc import Mapping

from headway.cluster.keys import secrets as cluster_secrets
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import MachineRequest


def machine_request(
    cluster: Cluster,
    secrets: Mapping[str, str],
    name: str,
    address: str,
    *,
    image_tag: str = "",
    container_port: int = 0,
) -> MachineRequest:
    """Returns the request for the head or a slot with this name."""
    private = secrets[cluster_secrets.host_key_name(name)]
    return MachineRequest(
        cluster=cluster.name,
        name=name,
        address=address,
        image=cluster.image,
        host_key_private=private,
        host_key_public=cluster_secrets.public_key(private),
        authorized_key=cluster_secrets.public_key(secrets["bootstrap_key"]),
        gpus=0 if name in cluster.heads else cluster.group_of[name].plan.gpus,
        head=name in cluster.heads,
        image_tag=image_tag,
        container_port=container_port,
    )
