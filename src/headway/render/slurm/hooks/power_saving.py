"""Autoscaled groups: Slurm's power saving, and the programs that pass its requests to Headway's server."""

from __future__ import annotations

from headway.catalog.node_images import slurm_release
from headway.domain.cluster import Cluster, Group
from headway.domain.machines.managed_file import File
from headway.domain.slurm.hostlist import compress
from headway.render.escaping import MARK
from headway.render.machine_paths import AGENT_COMMAND

ASKED = "/var/lib/headway-power"  # only Slurm's user can write there
_FOLDER = "/etc/headway/power"
UP, DOWN, FAILED = f"{_FOLDER}/up", f"{_FOLDER}/down", f"{_FOLDER}/failed"
GO_S = 30  # seconds until a machine must be deleted


def ready_timeout_s(cluster: Cluster) -> int:
    """Returns the seconds within which a machine must be created, set up and registered. A rented one boots for minutes and
    installs its packages, and perhaps a GPU driver."""
    return 1800 if cluster.rents_machines else 900


def autoscaled_groups(cluster: Cluster) -> tuple[Group, ...]:
    """Returns the groups that Slurm scales by demand."""
    return tuple(group for group in cluster.groups if group.idle_s is not None)


def settings(cluster: Cluster) -> tuple[tuple[str, str, str], ...]:
    """Returns (key, value, why) for slurm.conf; () if no group is autoscaled."""
    groups = autoscaled_groups(cluster)
    if not groups:
        return ()
    return (
        ("ResumeProgram", UP, "Records the nodes that Slurm powers up; Headway's server creates their machines."),
        ("SuspendProgram", DOWN, ""),
        ("ResumeFailProgram", FAILED, ""),
        (
            "SuspendTime",
            str(min(group.idle_s or 0 for group in groups)),
            "Seconds without a job until a node is powered down.",
        ),
        *_kept(cluster),
        *_states(cluster),
        ("ResumeTimeout", str(ready_timeout_s(cluster)), ""),
        ("SuspendTimeout", str(GO_S), ""),
        ("ResumeRate", "0", ""),
        ("SuspendRate", "0", ""),
    )


def _states(cluster: Cluster) -> tuple[tuple[str, str, str], ...]:
    """Returns settings that prevent Slurm from powering down a node that is out of service (DOWN, DRAIN)."""
    if not slurm_release(cluster.slurm_version).has_suspend_exc_states:
        return ()
    return (
        (
            "SuspendExcStates",
            "DOWN,DRAIN",
            "Never powers down nodes out of service; Headway itself powers down slots that it closes.",
        ),
        ("ReconfigFlags", "KeepPowerSaveSettings", "Keeps powered-down nodes powered down at a reconfigure."),
    )


def _kept(cluster: Cluster) -> tuple[tuple[str, str, str], ...]:
    """Returns the setting with the nodes that are never powered down; no row if there are no such nodes, because Slurm
    does not accept an empty value."""
    fixed = [name for group in cluster.groups if group.idle_s is None for name in group.slots]
    # By name: with a count, Slurm keeps that many idle nodes in addition to the busy ones (power_save.c,
    # _pick_exc_nodes).
    least = [name for group in autoscaled_groups(cluster) for name in group.slots[: group.min_machines]]
    names = ",".join(compress(some) for some in (fixed, least) if some)
    return (
        (
            (
                "SuspendExcNodes",
                names,
                "Nodes of groups without autoscaling, and the least number of each group with it.",
            ),
        )
        if names
        else ()
    )


def tmpfiles(cluster: Cluster) -> tuple[str, ...]:
    """Returns the head's tmpfiles rows."""
    return (f"d {ASKED} 0700 slurm slurm -",) if autoscaled_groups(cluster) else ()


def files(cluster: Cluster) -> dict[str, File]:
    """Returns the head's programs."""
    if not autoscaled_groups(cluster):
        return {}
    return {path: File(_program(word), mode=0o755) for path, word in ((UP, "up"), (DOWN, "down"), (FAILED, "failed"))}


def _program(word: str) -> str:

    return f"""\
#!/bin/sh
# {MARK}
# slurmctld runs this as its user with a list of nodes. It only wakes Headway's server, which reads the states of the nodes.
exec {AGENT_COMMAND} power {ASKED} {word} "$1"
"""
