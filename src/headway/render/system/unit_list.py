"""The systemd units of each role in bring-up order, and the files that each must have read."""

from __future__ import annotations

from dataclasses import replace

from headway.domain.changeset import Disturbs
from headway.domain.cluster import Cluster
from headway.domain.machines.site import Site
from headway.domain.machines.systemd_unit import Unit
from headway.domain.storage.folders import Volume
from headway.render import machine_paths
from headway.render.ha import single_active_head, slurm_state_folder, takeover_settings
from headway.render.monitoring import prometheus
from headway.render.slurm import slurm_conf
from headway.render.system import (
    agent_config,
    daemon_port_users,
    daemon_units,
    firewall,
    job_network,
    mariadb,
    nfs_exports,
    package_sources,
    rest_socket,
    volume_mounts,
)
from headway.render.system.login import hidden_processes, intra_job_ssh, sshd

MUNGE_KEY = "/etc/munge/munge.key"
_BESIDE = (
    "gres.conf", "cgroup.conf", "topology.conf", "mpi.conf", "plugstack.conf", "oci.conf", "cli_filter.lua", "job_submit.lua",
)  # fmt: skip
# Files that slurmctld, or a program at its start, reads only once.
_CONTROLLER = (
    machine_paths.JWT_KEY,
    daemon_units.drop_in("slurmctld.service"),
    slurm_state_folder.PROGRAM,
    takeover_settings.LEADS,
)


# If a slurmctld takes over while records for slurmdbd are unsent, slurmdbd's answers arrive before slurmctld's job table is
# loaded, and it ends with a division by zero (24.11.5: answer to a job's start; seen in the first seconds of a
# cluster). So RECONFIGURE waits until the queue for slurmdbd is empty.
RECONFIGURE = """\
for try in $(seq 150); do sdiag 2>/dev/null | grep -q 'DBD Agent queue size: *0$' && break; sleep 0.1; done
exec scontrol reconfigure"""


def units_by_role(cluster: Cluster, site: Site) -> dict[str, tuple[Unit, ...]]:
    """Returns the units of each role. Changed keys of slurm.conf may need more than a reload: see
    `slurm.change_impact`."""
    wall = (*firewall.units(site), *daemon_port_users.units(), *hidden_processes.units())
    munge = Unit("munge.service", restart_on=(MUNGE_KEY, daemon_units.drop_in("munge.service")))
    head, node = _mounts(cluster, site, head=True), _mounts(cluster, site, head=False)
    # Owned nodes mount the head's exports, and folders that the head makes on shared storage, for datasets and
    # environments. So these mounts wait for the controller, which starts after both.
    if site.own:
        node = tuple(replace(unit, stage="node") if unit.stage == "base" else unit for unit in node)
    wall_of_node = (*wall, *job_network.units(cluster, head=False))
    of_node = (*wall_of_node, *node, munge, _ssh(intra_job_ssh.SSHD), _slurmd(), _agent("node"))
    parted = (*wall_of_node, *node, munge, _ssh(intra_job_ssh.SSHD), _gpu_parts(), _slurmd(), _agent("node"))
    wall_of_head = (*wall, *job_network.units(cluster, head=True))
    second = (*wall_of_head, *head, munge, _ssh(), _standby(), _slurmrestd(), _rest_socket(), _agent("monitoring"))
    return {
        "head": (
            *wall_of_head,
            *head,
            *nfs_exports.head_units(site),
            munge,
            _ssh(),
            *_head(),
            *package_sources.head_units(cluster),
            _agent("monitoring"),
            *prometheus.units(),
        ),
        **{cluster.role_of(name): second for name in cluster.heads[1:]},
        **{
            cluster.role_of_group(group): parted if agent_config.has_mig(site, group) else of_node
            for group in cluster.groups
        },
    }


def _mounts(cluster: Cluster, site: Site, *, head: bool) -> tuple[Unit, ...]:
    """Returns the mount units. The cluster does not wait for volumes from other servers, which may be down
    (`may_fail`). They come last: one may be a bind mount from any other mount, or from an export of the head, which
    nodes mount in stage "node"."""
    names = volume_mounts.in_mount_order(volume_mounts.mount_units(cluster, site, head=head))
    volumes = {volume_mounts.unit_name(volume.path): volume for volume in cluster.storage.volumes}
    own = tuple(_mount(name) for name in names if name not in volumes)
    return own + tuple(
        replace(
            _mount(name),
            stage="base" if not head and _on_export(volumes[name], site) else "outside",
            may_fail=True,
        )
        for name in names
        if name in volumes
    )


def _mount(name: str) -> Unit:
    return Unit(name, restart_on=(f"{daemon_units.UNITS}/{name}",), disturbs=Disturbs.JOBS)


def _on_export(volume: Volume, site: Site) -> bool:
    """Returns whether the volume is bound from, or mounted in, a folder that the head exports."""
    places = (f"{volume.source}/", f"{volume.path}/")
    return any(place.startswith(f"{folder}/") for place in places for folder in nfs_exports.exported(site))


def _ssh(*more: str) -> Unit:
    return Unit("ssh.service", reload_on=(sshd.SSHD, *more), reload=("systemctl", "reload", "ssh.service"))


def _agent(stage: str) -> Unit:
    """Returns the agent's unit. It starts last in its stage, because no other unit waits for it."""
    own = (f"{daemon_units.UNITS}/{agent_config.AGENT}", machine_paths.AGENT_PROGRAM, agent_config.CONFIG)
    return Unit(agent_config.AGENT, restart_on=own, stage=stage)


def _head() -> tuple[Unit, ...]:
    restart = Disturbs.CONTROLLER_RESTART
    return (
        Unit(
            "mariadb.service",
            restart_on=(mariadb.PATH, daemon_units.drop_in("mariadb.service")),
            disturbs=restart,
            stage="database",
        ),
        Unit(
            "slurmdbd.service",
            restart_on=("/etc/slurm/slurmdbd.conf", machine_paths.JWT_KEY, daemon_units.drop_in("slurmdbd.service")),
            disturbs=Disturbs.NOTHING,  # slurmctld keeps records until slurmdbd is back
            stage="accounting",
        ),
        Unit(
            "slurmctld.service",
            restart_on=(*_CONTROLLER, single_active_head.PROGRAM),
            reload_on=(slurm_conf.PATH, *(f"/etc/slurm/{name}" for name in _BESIDE)),
            reload=("sh", "-c", RECONFIGURE),
            disturbs=restart,
            stage="controller",
        ),
        _slurmrestd(),
        _rest_socket(),
    )


def _standby() -> Unit:
    """Returns the slurmctld of a second head. A standby answers only pings, and reads its changed files only by a
    restart."""
    auxiliary = (f"/etc/slurm/{name}" for name in _BESIDE)
    own = (*_CONTROLLER, slurm_conf.PATH, *auxiliary)
    return Unit("slurmctld.service", restart_on=own, disturbs=Disturbs.NOTHING, stage="controller")


def _slurmrestd() -> Unit:
    return Unit("slurmrestd.service", restart_on=(daemon_units.drop_in("slurmrestd.service"),), stage="controller")


def _rest_socket() -> Unit:
    unit = f"{daemon_units.UNITS}/{rest_socket.SOCKET_UNIT}"
    return Unit(rest_socket.SOCKET_UNIT, restart_on=(unit,), stage="controller")


def _gpu_parts() -> Unit:
    """Returns the unit that makes MIG instances. It changes nothing while jobs are on the node."""
    own = (f"{daemon_units.UNITS}/{agent_config.GPU_PARTS}", agent_config.CONFIG)
    return Unit(agent_config.GPU_PARTS, restart_on=own, stage="base")


def _slurmd() -> Unit:
    return Unit(
        "slurmd.service",
        restart_on=(daemon_units.drop_in("slurmd.service"),),
        disturbs=Disturbs.NODE_RESTART,
        stage="node",
    )
