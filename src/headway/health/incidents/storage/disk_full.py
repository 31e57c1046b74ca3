"""Handles nodes whose disk is full of job files. They return to service when space is free again."""

from __future__ import annotations

from headway.domain.incident import FaultAction, Incident
from headway.errors import HeadwayError
from headway.health.context import HealthContext, fault_text
from headway.render.system.agent_config import UNFIT

WAIT_S = 7 * 86400.0  # after this time a person has to free the disk
POLL_S = 15.0
STABLE_S = 60.0  # a job that fills and empties its /tmp repeatedly drains its node only once
_DISK = "disk: "  # prefix of the agent's disk check in the symptom text


def waits_for_disk_space(incident: Incident) -> bool:
    """Returns whether the incident is about a full disk."""
    texts = (str(step.evidence.get("text") or "") for step in incident.current)
    return incident.action is FaultAction.MOUNT and any(text.startswith(_DISK) for text in texts)


async def wait_for_disk_space(context: HealthContext, incident: Incident) -> str:
    """Waits until the node's agent has reported enough space for STABLE_S. Returns "", or the fault that remains after
    WAIT_S."""
    if not waits_for_disk_space(incident):
        return ""
    ends, since = context.clock() + WAIT_S, None
    while True:
        try:
            async with context.mount_limit:
                machine = await context.running_machine(incident.node)
                ran = await context.cluster_context.connections.remote(
                    machine, ["cat", UNFIT], timeout_s=10, check=False
                )
            fault = ran.stdout.strip() if ran.code == 0 else ""
        except HeadwayError as error:
            fault = fault_text(error)
        now = context.clock()
        since = None if fault else now if since is None else since
        if since is not None and now - since >= STABLE_S:
            return ""
        if now >= ends:
            return fault or "the free space keeps changing"
        await context.sleep(POLL_S)
