"""Faults that are made on purpose: which there are and what they are made on."""

from __future__ import annotations

from enum import StrEnum


class FaultKind(StrEnum):
    XID = "xid"
    ECC = "ecc"
    THROTTLE = "throttle"
    KILL_NODE = "kill-node"
    RECLAIM = "reclaim"
    FREEZE_NODE = "freeze-node"
    CUT_NETWORK = "cut-network"
    SLOW_DISK = "slow-disk"
    FULL_DISK = "full-disk"
    MOUNT_LOST = "mount-lost"
    HANG_JOB = "hang-job"
    KILL = "kill"


class Daemon(StrEnum):
    """What FaultKind.KILL kills."""

    SLURMD = "slurmd"
    SLURMCTLD = "slurmctld"
    SLURMDBD = "slurmdbd"
    MARIADB = "mariadb"
    SLURMRESTD = "slurmrestd"
    PROMETHEUS = "prometheus"
    ALERTMANAGER = "alertmanager"
    AGENT = "agent"
    RELAY = "relay"  # the head's agent
    SERVER = "server"  # Headway's own


ON_NODES = frozenset(
    {Daemon.SLURMD, Daemon.AGENT}
)  # the others are where the cluster's head is, the server's own aside
# Made by the provider.
OF_MACHINES = frozenset({FaultKind.KILL_NODE, FaultKind.FREEZE_NODE, FaultKind.CUT_NETWORK, FaultKind.RECLAIM})
RECLAIM_IN_S = 120  # as providers say it before they take a machine back
OF_GPUS = frozenset({FaultKind.XID, FaultKind.ECC, FaultKind.THROTTLE})
