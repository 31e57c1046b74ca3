"""The program that keeps two heads from leading at the same time.

Before slurmctld starts on the first of them the second one stands down. Slurm's own way (the first asks for control back)
takes half a minute in which nobody schedules, and a slurmctld that has led once can't do so again without slurmdbd. So the
second is told to end: it saves its state, systemd starts it anew, and it stands by. One that leads and can't be reached, by
the heartbeat in the state folder, keeps the first from starting: two would schedule.

A controller that begins to lead says so in the state folder. One that stood still, or could not reach that folder, and goes on
after the other has taken over finds another name there: the agent ends it (node/agent/ha/leader.py)."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.managed_file import File
from headway.render.escaping import MARK, path, word
from headway.render.slurm.slurm_conf import LEADS, SLURMCTLD_TIMEOUT_S

PROGRAM = "/usr/lib/headway/take-back"
PORT = 6817


def files(cluster: Cluster, *, first: bool) -> dict[str, File]:
    if cluster.controllers == 1:
        return {}
    leads = {LEADS: File(_leads(path(cluster.state_folder, "storage.state")), mode=0o755)}
    return {**leads, **_take_back(cluster)} if first else leads


def _take_back(cluster: Cluster) -> dict[str, File]:
    return {
        PROGRAM: File(
            _program([word(name, "name") for name in cluster.heads[1:]], path(cluster.state_folder, "storage.state")),
            mode=0o755,
        )
    }


def _leads(state: str) -> str:
    """Run by slurmctld, as slurm. The name is new each time; that of this machine goes with the process. The folder is part of
    it: the file may name another one while this process goes on."""
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
    # Seconds and number of the controller that wrote them, big-endian; a clock may differ a little. While it is written
    # there is none for a moment.
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
        break  # it has saved its state; what starts next stands by
    if there and not told:
        subprocess.run(["scontrol", "shutdown", "slurmctld"], timeout=30, capture_output=True)
        told = True
    time.sleep(0.05 if told else 0.5)
"""
