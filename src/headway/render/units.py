"""The systemd units of each role, in bring-up order, and which files each must have read."""

from __future__ import annotations

from headway.domain.change import Disturbs
from headway.domain.cluster import Cluster
from headway.domain.unit import Unit
from headway.render import database, inside, slurm_conf, ssh, systemd

MUNGE_KEY = "/etc/munge/munge.key"
_BESIDE = ("gres.conf", "cgroup.conf", "topology.conf", "mpi.conf", "plugstack.conf")


# A slurmctld that takes over with records for slurmdbd still unsent meets their answers before its own job table is there,
# and ends by a division by zero (24.11.5: dbd's answer to a job's start; seen in a cluster's first seconds).
RECONFIGURE = """\
for try in $(seq 150); do sdiag 2>/dev/null | grep -q 'DBD Agent queue size: *0$' && break; sleep 0.1; done
exec scontrol reconfigure"""


def units(cluster: Cluster) -> dict[str, tuple[Unit, ...]]:
    """{"head": ..., "node": ...}. Changed keys of slurm.conf may need more than the reload: see `effect.effect_of`."""
    mounts = _mounts(cluster)
    munge = Unit("munge.service", restart_on=(MUNGE_KEY, systemd.drop_in("munge.service")))
    return {
        "head": (*mounts, munge, _ssh(), *_head(), _agent("controller")),
        "node": (*mounts, munge, _ssh(inside.SSHD), _slurmd(), _agent("node")),
    }


def _mounts(cluster: Cluster) -> tuple[Unit, ...]:
    names = systemd.names(systemd.mounts(cluster))
    return tuple(Unit(name, restart_on=(f"{systemd.UNITS}/{name}",), disturbs=Disturbs.JOBS) for name in names)


def _ssh(*more: str) -> Unit:
    return Unit("ssh.service", reload_on=(ssh.SSHD, *more), reload=("systemctl", "reload", "ssh.service"))


def _agent(stage: str) -> Unit:
    """Last, and with the daemons that people wait for: nothing waits for it."""
    return Unit(systemd.AGENT, restart_on=(f"{systemd.UNITS}/{systemd.AGENT}", systemd.AGENT_PROGRAM), stage=stage)


def _head() -> tuple[Unit, ...]:
    restart = Disturbs.CONTROLLER_RESTART
    return (
        Unit(
            "mariadb.service",
            restart_on=(database.PATH, systemd.drop_in("mariadb.service")),
            disturbs=restart,
            stage="database",
        ),
        Unit(
            "slurmdbd.service",
            restart_on=("/etc/slurm/slurmdbd.conf", slurm_conf.JWT_KEY, systemd.drop_in("slurmdbd.service")),
            disturbs=Disturbs.NOTHING,  # the controller keeps records until it is back
            stage="accounting",
        ),
        Unit(
            "slurmctld.service",
            restart_on=(slurm_conf.JWT_KEY, systemd.drop_in("slurmctld.service")),
            reload_on=(slurm_conf.PATH, *(f"/etc/slurm/{name}" for name in _BESIDE)),
            reload=("sh", "-c", RECONFIGURE),
            disturbs=restart,
            stage="controller",
        ),
        Unit(
            "slurmrestd.service",
            restart_on=(systemd.drop_in("slurmrestd.service"),),
            stage="controller",
        ),
    )


def _slurmd() -> Unit:
    return Unit(
        "slurmd.service",
        restart_on=(systemd.drop_in("slurmd.service"), MUNGE_KEY),
        disturbs=Disturbs.NODE_RESTART,
        stage="node",
    )
