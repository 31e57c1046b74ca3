"""The user data of a rented machine: what cloud-init does at its first boot. Pure."""

from __future__ import annotations

import json

LEASE_FILE = "/var/lib/headway/lease"  # its time of change is when the server last renewed the lease
LEASE_PROGRAM = "/usr/local/sbin/headway-lease"
_FIRST_LOOK, _LOOK = "15min", "5min"
_JOBS = {
    False: "grep -qsx slurmstepd /proc/[0-9]*/comm && exit 0",  # pgrep may be missing in an image
    # The jobs of the nodes need their controller.
    True: "squeue -h -t running,completing 2>/dev/null | grep -q . && exit 0",
}


def user_data(*, host_key: str, host_key_public: str, authorized_key: str, lease_s: int, head: bool) -> str:
    """Returns the text. `host_key`: the private key with which the machine answers first; it is replaced over that
    connection, because every program on a machine can read its user data. A JSON document is a YAML document too."""
    units = "/etc/systemd/system/headway-lease"
    document = {
        "preserve_hostname": True,
        "manage_etc_hosts": False,
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": host_key, "ed25519_public": host_key_public},
        "ssh_pwauth": False,
        "disable_root": False,
        "ssh_authorized_keys": [authorized_key],
        "write_files": [
            {"path": LEASE_PROGRAM, "permissions": "0755", "content": _lease_program(lease_s, head=head)},
            {"path": f"{units}.service", "content": f"[Service]\nType=oneshot\nExecStart={LEASE_PROGRAM}\n"},
            {
                "path": f"{units}.timer",
                "content": f"[Timer]\nOnBootSec={_FIRST_LOOK}\nOnUnitActiveSec={_LOOK}\n[Install]\nWantedBy=timers.target\n",
            },
        ],
        "runcmd": [
            ["mkdir", "-p", LEASE_FILE.rpartition("/")[0]],
            ["touch", LEASE_FILE],
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable", "--now", "headway-lease.timer"],
        ],
    }
    return f"#cloud-config\n{json.dumps(document, indent=1)}\n"


def _lease_program(lease_s: int, *, head: bool) -> str:
    return f"""#!/bin/sh
# Ends this rented machine once Headway's server has not renewed its lease for {lease_s} seconds and no job needs it.
age=$(( $(date +%s) - $(stat -c %Y {LEASE_FILE} || echo 0) ))
[ "$age" -lt {lease_s} ] && exit 0
{_JOBS[head]}
systemctl poweroff
"""
