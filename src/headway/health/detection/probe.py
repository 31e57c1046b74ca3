"""Probes a silent node in two other ways before it is treated as dead."""

from __future__ import annotations

import contextlib
import json

from headway.errors import HeadwayError
from headway.health.context import HealthContext

PROBE_S = 5.0  # seconds to wait for an answer
ATTEMPTS = 2
# The kernel accepts connections for a stopped program too, so only a banner that the SSH server sends counts.
_BANNER = (
    "import socket, sys\n"
    "with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=4) as link:\n"
    "    link.settimeout(4)\n"
    "    sys.exit(0 if link.recv(4) == b'SSH-' else 1)\n"
)

_AGES = (
    "import json, sys, time\n"
    "with open(sys.argv[1]) as file:\n"
    "    print(json.dumps({node: time.time() - at for node, at in json.load(file).items()}))\n"
)
_BEATS = "/run/headway/beats.json"  # node/agent/roles/head.py


async def read_heartbeat_ages(context: HealthContext) -> dict[str, float]:
    """Returns the seconds since the last heartbeat of each node, read on the head now. Raises HeadwayError."""
    argv = ["python3", "-I", "-S", "-c", _AGES, _BEATS]
    ran = await context.env.connections.remote(await context.head(), argv, timeout_s=PROBE_S + 5)
    return {str(node): float(age) for node, age in json.loads(ran.stdout).items()}


async def probe_node(context: HealthContext, node: str) -> str:
    """Returns how the node answered: over SSH to the server, or with its SSH banner to the head. Returns "" if it did
    not answer."""
    machine = (await context.machines()).get(node)
    if machine is None:
        return ""
    for _ in range(ATTEMPTS):
        with contextlib.suppress(HeadwayError, TimeoutError):
            await context.env.connections.remote(machine, ["true"], timeout_s=PROBE_S)
            return "SSH answers"
    argv = ["python3", "-I", "-S", "-c", _BANNER, machine.address, str(machine.port)]
    with contextlib.suppress(HeadwayError, TimeoutError):
        ran = await context.env.connections.remote(await context.head(), argv, timeout_s=PROBE_S + 5, check=False)
        if ran.code == 0:
            return "its SSH server answers the head"
    return ""
