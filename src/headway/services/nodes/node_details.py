"""Details of one node: its state, its open incident and the latest action of a person on it."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.incident import FaultAction, Incident
from headway.errors import NotFound
from headway.schemas.nodes.nodes import NodeDetailOut
from headway.services.app_state import AppState
from headway.services.nodes.incident_to_schema import incident_out
from headway.services.nodes.nodes_to_schema import node_outs


async def load_node_details(state: AppState, name: str, node: str) -> NodeDetailOut:
    """Returns the node as last read, with its open incident and the latest reboot or test. Raises NotFound."""
    cluster = await cluster_with_node(state, name, node)
    incident = await open_incident(state, name, node)
    out = next((node_out for node_out in node_outs(cluster, state.live.snapshot(name)) if node_out.name == node), None)
    if out is None:
        raise NotFound(f"{node} has no machine now", hint=f"headway nodes {name}")
    return NodeDetailOut(
        node=out,
        simulated_gpus=cluster.simulated_gpus and bool(out.gpus),
        incident=incident_out(await state.store.incidents.get(incident.number)) if incident else None,
        action=state.node_actions.get((name, node)),
    )


async def cluster_with_node(state: AppState, name: str, node: str) -> Cluster:
    """Returns the cluster. Raises NotFound if it has no such node."""
    _, cluster = await state.clusters.get(name)
    if node not in cluster.slot_names:
        raise NotFound(f"{name} has no node {node}", hint=f"headway nodes {name}")
    return cluster


async def open_incident(state: AppState, name: str, node: str) -> Incident | None:
    """Returns the node's open incident. Incidents that say that a machine could not be created or deleted are left out."""
    found = await state.store.incidents.search(name, node=node, unfinished=True)
    return next((incident for incident in found if incident.action is not FaultAction.MAKE), None)
