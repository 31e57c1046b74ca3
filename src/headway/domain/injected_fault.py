"""Faults that Headway injects on purpose: their kinds, and where each is injected."""

from __future__ import annotations

from enum import StrEnum


class FaultKind(StrEnum):
    """Kinds of faults that can be injected."""

    XID = "xid"
    ECC = "ecc"
    THROTTLE = "throttle"
    BAD_MEMORY = "bad-memory"  # silent: only node tests find it
    BAD_COMPUTE = "bad-compute"  # silent, like BAD_MEMORY
    KILL_NODE = "kill-node"
    RECLAIM = "reclaim"
    FREEZE_NODE = "freeze-node"
    CUT_NETWORK = "cut-network"
    SLOW_DISK = "slow-disk"
    FULL_DISK = "full-disk"
    MOUNT_LOST = "mount-lost"
    STALL_JOB = "stall-job"
    KILL = "kill"


class Daemon(StrEnum):
    """The daemon that FaultKind.KILL kills."""

    SLURMD = "slurmd"
    SLURMCTLD = "slurmctld"
    SLURMDBD = "slurmdbd"
    MARIADB = "mariadb"
    SLURMRESTD = "slurmrestd"
    PROMETHEUS = "prometheus"
    ALERTMANAGER = "alertmanager"
    AGENT = "agent"
    RELAY = "relay"  # the head's agent
    SERVER = "server"  # Headway's own server


ON_NODES = frozenset(
    {Daemon.SLURMD, Daemon.AGENT}
)  # the others run on the cluster's head; SERVER runs on the server's machine
# The provider injects these.
OF_MACHINES = frozenset({FaultKind.KILL_NODE, FaultKind.FREEZE_NODE, FaultKind.CUT_NETWORK, FaultKind.RECLAIM})
OF_HEADS = OF_MACHINES - {FaultKind.RECLAIM} | {FaultKind.KILL}  # heads can have these too
RECLAIM_IN_S = 120  # notice that providers give before they take a machine back
OF_GPUS = frozenset({FaultKind.XID, FaultKind.ECC, FaultKind.THROTTLE, FaultKind.BAD_MEMORY, FaultKind.BAD_COMPUTE})
