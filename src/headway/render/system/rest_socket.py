"""slurmrestd for people's own programs on a head: a socket that everybody may open, and a process of its own for each connection,
started by systemd. A token of `scontrol token` says who asks. Headway's server has another slurmrestd
(`daemon_units.controller_units`), which such programs neither slow down nor fill."""

from __future__ import annotations

from headway.catalog.slurm_releases import SlurmRelease
from headway.domain.machines.managed_file import File
from headway.render.escaping import MARK
from headway.render.system.daemon_units import UNITS

SOCKET = "/run/headway/rest.sock"
SOCKET_UNIT = "headway-rest.socket"
SERVICE = f"{UNITS}/headway-rest@.service"
CONNECTIONS, CONNECTIONS_OF_ONE = 32, 8
MEMORY_PERCENT = 20


def files(known: SlurmRelease) -> dict[str, File]:
    """Returns the units of a head."""
    parsers = f" -d {known.slurmrestd_data_parser}" if known.slurmrestd_data_parser else ""
    socket = f"""\
# {MARK}
[Unit]
Description=Slurm's REST API for people's programs
[Socket]
ListenStream={SOCKET}
# Everybody may connect; slurmrestd answers only requests with a token.
SocketMode=0666
Accept=yes
MaxConnections={CONNECTIONS}
MaxConnectionsPerSource={CONNECTIONS_OF_ONE}
[Install]
WantedBy=sockets.target
"""
    service = f"""\
# {MARK}
[Unit]
Description=A connection to Slurm's REST API
CollectMode=inactive-or-failed
[Service]
User=slurmrestd
Group=slurmrestd
Environment=SLURM_JWT=daemon
Environment=SLURMRESTD_DEBUG=2
Environment=MALLOC_ARENA_MAX=1
StandardInput=socket
StandardOutput=socket
StandardError=journal
ExecStart=/usr/sbin/slurmrestd -t 2 -a rest_auth/jwt -s {known.slurmrestd_plugins}{parsers}
Slice=headway-rest.slice
RuntimeMaxSec=1h
NoNewPrivileges=yes
OOMScoreAdjust=500
"""
    limits = f"""\
# {MARK}
[Slice]
# All connections together: lists of many jobs are large.
MemoryAccounting=yes
MemoryMax={MEMORY_PERCENT}%
CPUWeight=50
"""
    return {
        f"{UNITS}/{SOCKET_UNIT}": File(socket),
        SERVICE: File(service),
        f"{UNITS}/headway-rest.slice": File(limits),
    }
