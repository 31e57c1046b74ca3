"""Renders the program that prevents two heads from running an active controller at the same time.

Before slurmctld starts on the first head, the second one gives up control. Slurm's own way (the first requests control
back) takes half a minute without scheduling, and afterwards a slurmctld that was once active can't take over again
without slurmdbd. So the program ends the second slurmctld: it saves its state, systemd starts it again, and it becomes
the standby. If the heartbeat in the state folder shows that the second head is active but it can't be reached, the
first one does not start, because both would schedule.

A controller that becomes active writes its name to the state folder. If it was frozen or could not reach that folder,
and continues after the other has taken over, it finds another name there, and the agent ends it
(node/agent/failover/leader.py)."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.render.escaping import MARK, path, require_word
from headway.render.ha.takeover_settings import LEADS, SLURMCTLD_TIMEOUT_S

PROGRAM = "/usr/lib/headway/take-back"
PORT = 6817


def files(cluster: Cluster, *, first: bool) -> dict[str, File]:
    """Returns the files of a head; none in a cluster with one controller."""
    if cluster.controllers == 1:
        return {}
    leads = {LEADS: File(_leads(path(cluster.state_folder, "storage.state")), mode=0o755)}
    return {**leads, **_take_back(cluster)} if first else leads


def _take_back(cluster: Cluster) -> dict[str, File]:
    return {
        PROGRAM: File(
            _program(
                [require_word(name, "name") for name in cluster.heads[1:]], path(cluster.state_folder, "storage.state")
            ),
            mode=0o755,
        )
    }


def _leads(state: str) -> str:
    """Returns the script that slurmctld runs as the user slurm when it becomes active. It writes a new name to the
    state folder and keeps a copy on this machine for the agent. The name contains the state folder, because the
    cluster file may change that folder while this process runs."""
    return f"""\
#!/bin/sh
# {MARK}
set -eu
name="$(uname -n) $(cat /proc/sys/kernel/random/uuid) {state}"
echo "$name" >{state}/leads.new
mv {state}/leads.new {state}/leads
echo "$name" >/run/slurmctld/leads
"""


def _program(others: list[str], state: str) -> str:
    return f"""\
#!/usr/bin/python3 -IS
# {MARK}
import socket, struct, subprocess, time

OTHERS, PORT, HEARTBEAT = {others!r}, {PORT}, "{state}/heartbeat"


def listens(name):
    try:
        socket.create_connection((name, PORT), 1).close()
    except OSError:
        return False
    return True


def leads():
    # Unix seconds and the number of the controller that wrote them, big-endian; clocks may differ a little. The file is
    # missing for a moment while slurmctld replaces it.
    for _ in range(5):
        try:
            with open(HEARTBEAT, "rb") as file:
                at, number = struct.unpack(">QQ", file.read(16))
            break
        except (OSError, struct.error):
            time.sleep(0.05)
    else:
        return False
    return number > 0 and abs(time.time() - at) <= {3 * SLURMCTLD_TIMEOUT_S}


told = False
while leads():
    there = [name for name in OTHERS if listens(name)]
    if told and not there:
        break  # it has saved its state and will start again as standby
    if there and not told:
        subprocess.run(["scontrol", "shutdown", "slurmctld"], timeout=30, capture_output=True)
        told = True
    time.sleep(0.05 if told else 0.5)
"""
