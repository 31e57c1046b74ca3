"""Renders all files of all machines of a cluster, by role."""

from __future__ import annotations

from headway.catalog.node_images import slurm_release
from headway.domain.cluster import Cluster, Group
from headway.domain.machines.managed_file import File
from headway.domain.machines.site import Site
from headway.render import machine_paths
from headway.render.escaping import check_plain_strings
from headway.render.ha import single_active_head, slurm_state_folder
from headway.render.monitoring import prometheus
from headway.render.slurm import (
    cgroup_conf,
    container_conf,
    gres_conf,
    mpi_conf,
    queue_recovery_unit,
    slurm_conf,
    slurm_version_marker,
    slurmdbd_conf,
    topology_conf,
)
from headway.render.slurm.hardware.node_hardware import hardware_is_simulated, hardware_of
from headway.render.slurm.hooks import cli_filter, mps, power_saving, prolog_epilog, site_scripts, task_prolog
from headway.render.slurm.hooks.job_network import RULES as JOB_NETWORK_RULES
from headway.render.system import (
    agent_config,
    daemon_port_users,
    daemon_units,
    etc_hosts,
    firewall,
    image_signatures,
    job_network,
    mail,
    mariadb,
    nfs_exports,
    package_sources,
    rest_socket,
    tmpfiles,
    volume_mounts,
)
from headway.render.system.login import (
    head_user_limits,
    hidden_processes,
    intra_job_ssh,
    limits_conf,
    module_files,
    shell_env,
    sshd,
    users,
)
from headway.render.system.unit_list import MUNGE_KEY

LIMITS = "/etc/security/limits.d/headway.conf"
# Files whose text depends on who the users are, besides those of `users.people`
USER_RULES = frozenset({daemon_port_users.RULES, JOB_NETWORK_RULES})


def render_files(cluster: Cluster, site: Site) -> dict[str, dict[str, File]]:
    """Returns {role: {path: File}} with the roles of `Cluster.role_of`: each head has its own files, the nodes of a
    group share one set. Raises InvalidSpec for a value that can't be written on one line; the validation of the
    cluster file should have refused it before."""
    check_plain_strings(cluster)
    check_plain_strings(site, "site")
    common = _common(cluster, site)
    nodes = {cluster.role_of_group(group): {**common, **_node(cluster, site, group)} for group in cluster.groups}
    heads = {cluster.role_of(name): {**common, **_head(cluster, site, name)} for name in cluster.heads}
    return {**heads, **nodes}


def _common(cluster: Cluster, site: Site) -> dict[str, File]:
    files = {
        MUNGE_KEY: File("", mode=0o400, owner="munge", group="munge", secret="munge_key"),
        "/etc/hosts": File(etc_hosts.hosts(cluster, site), block=site.own is not None),
        sshd.SSHD: File(sshd.sshd_conf(site)),
        "/etc/environment": File(shell_env.environment(), block=site.own is not None),
        "/etc/profile.d/headway.sh": File(shell_env.profile()),
        LIMITS: File(limits_conf.login_limits()),
        **{
            f"{module_files.MODULES}/{name}.lua": File(text)
            for name, text in module_files.module_files(cluster).items()
        },
        **package_sources.files(cluster),
        **users.people(cluster, site),
        **firewall.files(cluster, site),
        **hidden_processes.files(),
        **image_signatures.files(cluster),
    }
    if cluster.provider.boots_node_images:
        files["/etc/nsswitch.conf"] = File(users.nsswitch())
    if cluster.provider.private_network:
        files["/etc/resolv.conf"] = File(etc_hosts.resolv_conf())
    return files


def _head(cluster: Cluster, site: Site, name: str) -> dict[str, File]:
    """Returns the files of a head. Only the first head has accounting and monitoring."""
    known, first = slurm_release(cluster.slurm_version), name == cluster.head
    head_cpus = site.real_cpus or cluster.largest_plan.cpus
    files = {
        "/etc/sysusers.d/headway.conf": File(users.sysusers()),
        "/etc/tmpfiles.d/headway.conf": File(tmpfiles.tmpfiles(site, head=True, more=power_saving.tmpfiles(cluster))),
        **slurm_version_marker.files(cluster, first=first),
        slurm_conf.PATH: File(slurm_conf.slurm_conf(cluster, site)),
        "/etc/slurm/cgroup.conf": File(
            cgroup_conf.cgroup_conf(pretends=hardware_is_simulated(cluster, site), old=site.cgroup_v1)
        ),
        "/etc/slurm/mpi.conf": File(mpi_conf.mpi_conf()),
        "/etc/slurm/plugstack.conf": File(container_conf.plugstack_conf(cluster)),
        **({container_conf.OCI: File(container_conf.oci_conf())} if known.runs_oci_bundles else {}),
        machine_paths.JWT_KEY: File("", mode=0o600, owner="slurm", group="slurm", secret="jwt_key"),
        sshd.PAM: File(sshd.pam_head()),
        sshd.PAM_MANAGER: File(sshd.pam_manager()),
        head_user_limits.SESSION_PROGRAM: File(head_user_limits.cgroup_v1_session_program(head_cpus), mode=0o755),
        **daemon_units.controller_units(cluster, known, name, around=queue_recovery_unit.AROUND if first else ""),
        **rest_socket.files(known),
        **volume_mounts.files(cluster, site, head=True),
        **agent_config.head_files(cluster, site, name),
        **head_user_limits.user_slices(head_cpus),
        **daemon_port_users.files(cluster, site, name),
        **job_network.files(cluster, site, head=True),
        **power_saving.files(cluster),
        **(_accounting(cluster, site) if first else {}),
        **(package_sources.head_files(cluster, site) if first else {}),
        **single_active_head.files(cluster, first=first),
        **slurm_state_folder.files(cluster, first=first),
        **cli_filter.files(cluster),
        **site_scripts.head_files(cluster.scripts),
        **(queue_recovery_unit.files() if first else {}),
    }
    if any(hardware_of(cluster, site, name).gpus for name in cluster.slot_names):
        files["/etc/slurm/gres.conf"] = File(gres_conf.gres_conf(cluster, site))
    if cluster.switches:
        files["/etc/slurm/topology.conf"] = File(topology_conf.topology_conf(cluster))
    if cluster.mail_relay:
        files["/etc/msmtprc"] = File(mail.msmtprc(cluster))
    return files


def _accounting(cluster: Cluster, site: Site) -> dict[str, File]:
    """Returns the files of accounting and of what runs next to the database: monitoring and NFS exports."""
    return {
        "/etc/slurm/slurmdbd.conf": File(slurmdbd_conf.slurmdbd_conf(cluster, site), 0o600, "slurm", "slurm"),
        mariadb.PATH: File(mariadb.mariadb_cnf()),
        **daemon_units.database_units(),
        **nfs_exports.head_files(cluster, site),
        **prometheus.files(cluster, site),
    }


def _node(cluster: Cluster, site: Site, group: Group) -> dict[str, File]:
    known = slurm_release(cluster.slurm_version)
    files = {
        "/etc/tmpfiles.d/headway.conf": File(
            tmpfiles.tmpfiles(
                site,
                head=False,
                gpus=group.plan.gpus,
                containers=cluster.containers,
                more=intra_job_ssh.tmpfiles(cluster),
            )
        ),
        sshd.PAM: File(sshd.pam_node(sshd.operators(site))),
        **intra_job_ssh.files(cluster, site),
        **daemon_port_users.files(cluster, site),
        **job_network.files(cluster, site, head=False),
        **prolog_epilog.scripts(
            known,
            cluster.containers,
            acts=cluster.health.act,
            mps=mps.has_mps(site, group),
            network=cluster.restricts_network,
            processes_per_cpu=limits_conf.job_processes_per_cpu(cluster),
            volumes=volume_mounts.provided_volumes(cluster, site),
            outside=(*nfs_exports.exported(site), *(volume.path for volume in cluster.storage.volumes)),
        ),
        **site_scripts.node_files(cluster.scripts),
        **task_prolog.files(cluster),
        **mps.files(site, group),
        LIMITS: File(limits_conf.login_limits(limits_conf.user_processes(cluster, group))),
        **daemon_units.node_units(cluster, known, group),
        **volume_mounts.files(cluster, site, head=False),
        **agent_config.node_files(cluster, site, group),
        **agent_config.parts_files(site, group),
    }
    if cluster.containers == "enroot":
        files["/etc/enroot/enroot.conf"] = File(container_conf.enroot_conf(cluster))
    if cluster.simulated_gpus and group.plan.gpus:
        files["/etc/headway/gpus.json"] = File(agent_config.simulated_gpus(group.plan))
    return files
