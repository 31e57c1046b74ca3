"""A node whose disk its jobs have filled: it serves again once there is room."""

from __future__ import annotations

from headway.domain.incident import Incident, XidClass
from headway.errors import HeadwayError
from headway.health.context import Tools, fault_of
from headway.render.system.agent_config import UNFIT

ROOM_S = 7 * 86400.0  # then a person has to see to it
LOOK_S = 15.0
STAYS_S = 60.0  # a job that fills and empties its /tmp drains its node once and not each time
_DISK = "disk: "  # of the agent's check, before its words


def waits_for_room(incident: Incident) -> bool:
    said = (str(step.evidence.get("text") or "") for step in incident.current)
    return incident.action is XidClass.MOUNT and any(text.startswith(_DISK) for text in said)


async def roomy(tools: Tools, incident: Incident) -> str:
    """Until the node's agent has seen room for a minute, where that was missing: jobs give it back as they end. What is still
    wrong when a person has to see to it."""
    if not waits_for_room(incident):
        return ""
    ends, since = tools.clock() + ROOM_S, None
    while True:
        try:
            async with tools.mounting:
                machine = await tools.machine(incident.node)
                ran = await tools.env.connections.remote(machine, ["cat", UNFIT], timeout_s=10, check=False)
            fault = ran.stdout.strip() if ran.code == 0 else ""
        except HeadwayError as error:
            fault = fault_of(error)
        now = tools.clock()
        since = None if fault else now if since is None else since
        if since is not None and now - since >= STAYS_S:
            return ""
        if now >= ends:
            return fault or "room comes and goes"
        await tools.sleep(LOOK_S)
