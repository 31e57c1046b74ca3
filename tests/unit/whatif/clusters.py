"""A resolved cluster for tests of what-if."""

from __future__ import annotations

from typing import Any

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import resolve_cluster_file
from headway.domain.cluster import Cluster

_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


def lab_file(**fields: Any) -> dict[str, Any]:
    """Returns the mapping of a cluster file with four nodes of eight GPUs and two teams."""
    teams = {"vision": {"users": ["alice", "vera"]}, "speech": {"users": ["sam"]}}
    return {
        "name": "lab",
        "provider": "local",
        "plan": "h100-8",
        "nodes": 4,
        "teams": teams,
        "ssh_keys": [_KEY],
        **fields,
    }


def lab(**fields: Any) -> Cluster:
    """Returns the resolved cluster."""
    return resolve_cluster_file(lab_file(**fields), load_catalogue(), owner="owner")[0]
