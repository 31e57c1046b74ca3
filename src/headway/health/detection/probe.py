"""Probes a silent node in two other ways before it is treated as dead."""

from __future__ import annotations

import contextlib
import json

from headway.errors import HeadwayError
from headway.health.context import HealthContext
from headway.transport.remote_program import program_source

PROBE_S = 5.0  # seconds to wait for an answer
ATTEMPTS = 2
_BEATS = "/run/headway/beats.json"  # node/agent/heartbeats.py


async def read_heartbeat_ages(context: HealthContext) -> dict[str, float]:
    """Returns the seconds since the last heartbeat of each node, read on the head now. Raises HeadwayError."""
    argv = ["python3", "-I", "-S", "-c", program_source("heartbeat_ages"), _BEATS]
    ran = await context.cluster_context.connections.remote(await context.head(), argv, timeout_s=PROBE_S + 5)
    return {str(node): float(age) for node, age in json.loads(ran.stdout).items()}


async def probe_node(context: HealthContext, node: str) -> str:
    """Returns how the node answered: over SSH to the server, or with its SSH banner to the head. Returns "" if it did
    not answer."""
    machine = (await context.machines()).get(node)
    if machine is None:
        return ""
    for _ in range(ATTEMPTS):
        with contextlib.suppress(HeadwayError, TimeoutError):
            await context.cluster_context.connections.remote(machine, ["true"], timeout_s=PROBE_S)
            return "SSH answers"
    argv = ["python3", "-I", "-S", "-c", program_source("probe_ssh"), machine.address, str(machine.port)]
    with contextlib.suppress(HeadwayError, TimeoutError):
        ran = await context.cluster_context.connections.remote(
            await context.head(), argv, timeout_s=PROBE_S + 5, check=False
        )
        if ran.code == 0:
            return "its SSH server answers the head"
    return ""
