"""Pure text, both ways: a resolved cluster and its site -> every file of every machine; one module a kind of file."""

from __future__ import annotations

from headway.domain.cluster import Cluster, Site
from headway.domain.files import File
from headway.render import (
    database,
    hosts,
    inside,
    login,
    people,
    scripts,
    sessions,
    slurm_conf,
    slurm_small,
    ssh,
    systemd,
)
from headway.render.effect import effect_of
from headway.render.hardware import hardware
from headway.render.text import guard
from headway.render.units import MUNGE_KEY, units
from headway.render.version import version

__all__ = ["effect_of", "render", "units"]


def render(cluster: Cluster, site: Site) -> dict[str, dict[str, File]]:
    """{"head": {path: File}, "node": {path: File}}; all nodes have one set. Raises InvalidSpec for a value that can't
    be written on one line, the last guard behind the validation of the cluster file."""
    guard(cluster)
    guard(site, "site")
    common = _common(cluster, site)
    return {"head": {**common, **_head(cluster, site)}, "node": {**common, **_node(cluster, site)}}


def _common(cluster: Cluster, site: Site) -> dict[str, File]:
    files = {
        MUNGE_KEY: File("", mode=0o400, owner="munge", group="munge", secret="munge_key"),
        "/etc/hosts": File(hosts.hosts(cluster, site)),
        "/etc/nsswitch.conf": File(people.nsswitch()),
        ssh.SSHD: File(ssh.sshd_conf(site)),
        "/etc/environment": File(login.environment()),
        "/etc/profile.d/headway.sh": File(login.profile()),
        "/etc/security/limits.d/headway.conf": File(login.limits()),
        f"{login.MODULES}/pytorch/system.lua": File(login.module_pytorch()),
        **systemd.files(systemd.mounts(cluster)),
        **people.people(cluster, site),
    }
    if cluster.provider == "local":
        files["/etc/resolv.conf"] = File(hosts.resolv_conf())
    return files


def _head(cluster: Cluster, site: Site) -> dict[str, File]:
    known = version(cluster.slurm_version)
    node = hardware(cluster, site)
    head_cpus = site.real_cpus or cluster.plan.cpus
    files = {
        "/etc/sysusers.d/headway.conf": File(systemd.sysusers()),
        "/etc/tmpfiles.d/headway.conf": File(systemd.tmpfiles(site, head=True)),
        slurm_conf.PATH: File(slurm_conf.slurm_conf(cluster, site)),
        "/etc/slurm/cgroup.conf": File(slurm_small.cgroup_conf(node)),
        "/etc/slurm/mpi.conf": File(slurm_small.mpi_conf()),
        "/etc/slurm/plugstack.conf": File(slurm_small.plugstack_conf(cluster)),
        "/etc/slurm/slurmdbd.conf": File(slurm_small.slurmdbd_conf(cluster, site), 0o600, "slurm", "slurm"),
        slurm_conf.JWT_KEY: File("", mode=0o600, owner="slurm", group="slurm", secret="jwt_key"),
        database.PATH: File(database.mariadb_cnf()),
        ssh.PAM: File(ssh.pam_head()),
        ssh.PAM_MANAGER: File(ssh.pam_manager()),
        sessions.PROGRAM: File(sessions.session_program(head_cpus), mode=0o755),
        **systemd.head_units(known),
        **systemd.agent(cluster, site, head=True),
        **systemd.user_limits(head_cpus),
    }
    if node.gpus:
        files["/etc/slurm/gres.conf"] = File(slurm_small.gres_conf(cluster, node))
    if cluster.switches:
        files["/etc/slurm/topology.conf"] = File(slurm_small.topology_conf(cluster))
    if cluster.mail_relay:
        files["/etc/msmtprc"] = File(login.msmtprc(cluster))
    return files


def _node(cluster: Cluster, site: Site) -> dict[str, File]:
    known = version(cluster.slurm_version)
    files = {
        "/etc/tmpfiles.d/headway.conf": File(
            systemd.tmpfiles(site, head=False, containers=cluster.containers, more=inside.tmpfiles(cluster))
        ),
        ssh.PAM: File(ssh.pam_node()),
        **inside.files(cluster, site),
        **scripts.scripts(known, cluster.containers),
        **systemd.node_units(cluster, known),
        **systemd.agent(cluster, site, head=False),
    }
    if cluster.containers == "enroot":
        files["/etc/enroot/enroot.conf"] = File(slurm_small.enroot_conf(cluster))
    if cluster.simulated_gpus:
        files["/etc/headway/gpus.json"] = File(slurm_small.simulated_gpus(cluster))
    return files
