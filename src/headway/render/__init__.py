"""Pure text, both ways: a resolved cluster and its site -> every file of every machine; one module a kind of file."""

from __future__ import annotations

from headway.domain.cluster import Cluster, Group, Site
from headway.domain.files import File
from headway.render import (
    agent,
    database,
    exports,
    firewall,
    hosts,
    inside,
    login,
    monitoring,
    people,
    power,
    scripts,
    sessions,
    slurm_conf,
    slurm_small,
    ssh,
    state,
    submitted,
    systemd,
    takeback,
    written,
)
from headway.render.effect import effect_of
from headway.render.hardware import hardware_of, pretended
from headway.render.text import guard
from headway.render.units import MUNGE_KEY, units
from headway.render.version import version

__all__ = ["effect_of", "render", "units"]


def render(cluster: Cluster, site: Site) -> dict[str, dict[str, File]]:
    """{role: {path: File}} with the roles of `Cluster.role_of`: each head, and the nodes of each group, which have one set.
    Raises InvalidSpec for a value that can't be written on one line, the last guard behind the validation of the cluster
    file."""
    guard(cluster)
    guard(site, "site")
    common = _common(cluster, site)
    nodes = {cluster.role_of_group(group): {**common, **_node(cluster, site, group)} for group in cluster.groups}
    heads = {cluster.role_of(name): {**common, **_head(cluster, site, name)} for name in cluster.heads}
    return {**heads, **nodes}


def _common(cluster: Cluster, site: Site) -> dict[str, File]:
    files = {
        MUNGE_KEY: File("", mode=0o400, owner="munge", group="munge", secret="munge_key"),
        "/etc/hosts": File(hosts.hosts(cluster, site), block=site.own is not None),
        ssh.SSHD: File(ssh.sshd_conf(site)),
        "/etc/environment": File(login.environment(), block=site.own is not None),
        "/etc/profile.d/headway.sh": File(login.profile()),
        "/etc/security/limits.d/headway.conf": File(login.limits()),
        f"{login.MODULES}/pytorch/system.lua": File(login.module_pytorch()),
        **people.people(cluster, site),
        **firewall.files(cluster, site),
    }
    if cluster.provider == "local":
        files["/etc/nsswitch.conf"] = File(people.nsswitch())
        files["/etc/resolv.conf"] = File(hosts.resolv_conf())
    return files


def _head(cluster: Cluster, site: Site, name: str) -> dict[str, File]:
    """Of a head; accounting and monitoring are the first one's."""
    known, first = version(cluster.slurm_version), name == cluster.head
    head_cpus = site.real_cpus or cluster.largest.cpus
    files = {
        "/etc/sysusers.d/headway.conf": File(systemd.sysusers()),
        "/etc/tmpfiles.d/headway.conf": File(systemd.tmpfiles(site, head=True, more=power.tmpfiles(cluster))),
        **written.files(cluster, first=first),
        slurm_conf.PATH: File(slurm_conf.slurm_conf(cluster, site)),
        "/etc/slurm/cgroup.conf": File(
            slurm_small.cgroup_conf(pretends=pretended(cluster, site), old=site.old_cgroups)
        ),
        "/etc/slurm/mpi.conf": File(slurm_small.mpi_conf()),
        "/etc/slurm/plugstack.conf": File(slurm_small.plugstack_conf(cluster)),
        slurm_conf.JWT_KEY: File("", mode=0o600, owner="slurm", group="slurm", secret="jwt_key"),
        ssh.PAM: File(ssh.pam_head()),
        ssh.PAM_MANAGER: File(ssh.pam_manager()),
        sessions.PROGRAM: File(sessions.session_program(head_cpus), mode=0o755),
        **systemd.controller_units(cluster, known, name, around=submitted.AROUND if first else ""),
        **systemd.files(systemd.mounts(cluster, site, head=True)),
        **agent.head_files(cluster, site, name),
        **systemd.user_limits(head_cpus),
        **power.files(cluster),
        **(_accounting(cluster, site) if first else {}),
        **takeback.files(cluster, first=first),
        **state.files(cluster, first=first),
        **submitted.files(cluster, recalls=first),
    }
    if any(hardware_of(cluster, site, name).gpus for name in cluster.slot_names):
        files["/etc/slurm/gres.conf"] = File(slurm_small.gres_conf(cluster, site))
    if cluster.switches:
        files["/etc/slurm/topology.conf"] = File(slurm_small.topology_conf(cluster))
    if cluster.mail_relay:
        files["/etc/msmtprc"] = File(login.msmtprc(cluster))
    return files


def _accounting(cluster: Cluster, site: Site) -> dict[str, File]:
    """And what else lives beside the database: monitoring, and what machines one owns export."""
    return {
        "/etc/slurm/slurmdbd.conf": File(slurm_small.slurmdbd_conf(cluster, site), 0o600, "slurm", "slurm"),
        database.PATH: File(database.mariadb_cnf()),
        **systemd.database_units(),
        **exports.head_files(cluster, site),
        **monitoring.files(cluster, site),
    }


def _node(cluster: Cluster, site: Site, group: Group) -> dict[str, File]:
    known = version(cluster.slurm_version)
    files = {
        "/etc/tmpfiles.d/headway.conf": File(
            systemd.tmpfiles(
                site, head=False, gpus=group.plan.gpus, containers=cluster.containers, more=inside.tmpfiles(cluster)
            )
        ),
        ssh.PAM: File(ssh.pam_node(ssh.operators(site))),
        **inside.files(cluster, site),
        **scripts.scripts(
            known,
            cluster.containers,
            acts=cluster.health.act,
            volumes=systemd.volumes(cluster, site),
            outside=(*exports.exported(site), *(volume.path for volume in cluster.storage.volumes)),
        ),
        **systemd.node_units(cluster, known, group),
        **systemd.files(systemd.mounts(cluster, site, head=False)),
        **agent.node_files(cluster, site, group),
    }
    if cluster.containers == "enroot":
        files["/etc/enroot/enroot.conf"] = File(slurm_small.enroot_conf(cluster))
    if cluster.simulated_gpus and group.plan.gpus:
        files["/etc/headway/gpus.json"] = File(slurm_small.simulated_gpus(group.plan))
    return files
