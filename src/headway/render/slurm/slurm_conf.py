"""Renders /etc/slurm/slurm.conf, the controller's file. Nodes fetch it from the controller (configless)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from headway.catalog.allowed_slurm_keys import MESSAGE_TIMEOUT_S, least_unkillable_s
from headway.catalog.node_images import slurm_release
from headway.catalog.slurm_releases import SlurmRelease
from headway.domain.cluster import Cluster
from headway.domain.machines.site import Site
from headway.render.escaping import MARK, commented_setting, path, slurm_text
from headway.render.ha.takeover_settings import takeover_settings
from headway.render.machine_paths import EPILOG, JOB_TMP, JWT_KEY, PROLOG, SLURMD_SPOOL, TASK_PROLOG
from headway.render.slurm.conf_section_types import Section, Setting
from headway.render.slurm.conf_syntax import ConfLine
from headway.render.slurm.hardware.default_shares import DefaultShare, smallest_share
from headway.render.slurm.hardware.node_hardware import (
    Hardware,
    distinct_hardware,
    hardware_is_simulated,
)
from headway.render.slurm.hooks import power_saving
from headway.render.slurm.hooks.task_prolog import uses_task_prolog
from headway.render.slurm.nodes_partitions import node_lines, partition_lines

PATH = "/etc/slurm/slurm.conf"
KILL_WAIT_S = 30
KILL_WAIT_SHORT_S = 5  # where jobs of a dead node wait for it before they run elsewhere
SUBMITTED_WHY = "sbatch logs its command in the user's home, to resubmit jobs that a killed controller had not saved."
# The same rule as in headway.services.access.ownership_rights: all users see the queue; only a team's members see its usage.
PRIVATE = "usage"
PRIVATE_WHY = "Every user sees the whole queue; usage is visible to its user and the user's team."
SRUN_PORTS = (60001, 63000)  # ports where srun listens for its tasks, on owned machines
# One user's squeue in a loop must not slow others. Room for 200 sbatch in a row; a log line a minute for each user.
_REQUEST_LIMIT = ("rl_enable", "rl_bucket_size=200", "rl_refill_rate=20", "rl_log_freq=60")
BACKFILL_LOOK_AHEAD_MAX_S = 14 * 86400


def slurm_conf(cluster: Cluster, site: Site) -> str:
    """Returns the whole file. Raises InvalidSpec for a value that can't be written on a line."""
    known = slurm_release(cluster.slurm_version)
    pretends = hardware_is_simulated(cluster, site)
    nodes = distinct_hardware(cluster, site, cluster.slot_names)
    # Also what nodes get only with a roll: sacctmgr refuses a limit on a resource that is not accounted.
    later = distinct_hardware(cluster, replace(site, parts_now={}), cluster.slot_names) if site.parts_now else ()
    sections = [
        _control(cluster, site),
        _daemons(cluster, known, pretends=pretends),
        _resources(smallest_share(nodes), (*nodes, *later)),
        _isolation(known, pretends=pretends, task_prolog=uses_task_prolog(cluster)),
        _accounting(cluster, (*nodes, *later)),
        _priority(),
        _preemption(cluster, known),
        _scheduling(cluster),
        _recovery(cluster, known),
        _power(cluster),
        _mail(cluster),
    ]
    lines = [ConfLine(comment=MARK), *_settings(_with_overrides(sections, _own_keys(cluster.slurm)))]
    lines += [ConfLine(), *node_lines(cluster, site), ConfLine(), *partition_lines(cluster, site)]
    return slurm_text(lines, "slurm")


def _settings(sections: Iterable[Section]) -> Iterator[ConfLine]:
    for section in sections:
        if section.settings:
            yield ConfLine()
            yield ConfLine(comment=f"--- {section.title}")
        for setting in section.settings:
            yield from commented_setting(setting.key, setting.value, setting.why)


def _own_keys(slurm: Mapping[str, str]) -> dict[str, str]:
    """Returns the cluster file's own keys. An UnkillableStepTimeout that Slurm would report as an error is raised to
    the lowest allowed value."""
    least = least_unkillable_s(slurm)
    short = {key: str(least) for key, value in slurm.items() if key == "UnkillableStepTimeout" and int(value) < least}
    return {**slurm, **short}


def _with_overrides(sections: list[Section], overrides: Mapping[str, str]) -> list[Section]:
    """Returns the sections with the cluster file's `slurm:` keys in place of Headway's, ignoring case; further keys
    come last."""
    left = {key.lower(): Setting(key, value, "From the cluster file.") for key, value in overrides.items()}
    result = []
    for section in sections:
        rows = tuple(left.pop(row.key.lower(), row) for row in section.settings)
        result.append(replace(section, settings=rows))
    return [*result, Section("from the cluster file", tuple(left.values()))]


def _control(cluster: Cluster, site: Site) -> Section:
    state = "On the head's own volume, so that a new head finds the queue."
    if cluster.controllers > 1:
        state = "A folder that all controllers share, so that the standby continues with the same queue."
    return Section(
        "controller and identity",
        (
            Setting("ClusterName", cluster.name),
            *(Setting("SlurmctldHost", f"{name}({site.addresses[name]})") for name in cluster.heads),
            Setting("SlurmUser", "slurm"),
            Setting("AuthType", "auth/munge"),
            Setting("CredType", "cred/munge"),
            Setting("AuthAltTypes", "auth/jwt", "Tokens of Headway's server, which reads through slurmrestd."),
            Setting("AuthAltParameters", f"jwt_key={JWT_KEY}"),
            Setting(
                "CommunicationParameters",
                "block_null_hash",
                "Rejects messages without a signature of their content.",
            ),
            Setting("StateSaveLocation", path(cluster.state_folder, "storage.state"), state),
            Setting("CliFilterPlugins", "lua", SUBMITTED_WHY),
            *(
                (Setting("JobSubmitPlugins", "lua", "The site's own job_submit.lua."),)
                if cluster.scripts.job_submit
                else ()
            ),
            *_ports(site),
        ),
    )


def _ports(site: Site) -> tuple[Setting, ...]:
    """Returns srun's ports for owned machines, whose firewall opens them to the cluster's machines only."""
    first, last = SRUN_PORTS
    why = "Ports on which srun listens for its tasks; the firewall opens them to the cluster's machines only."
    return (Setting("SrunPortRange", f"{first}-{last}", why),) if site.own else ()


def _daemons(cluster: Cluster, known: SlurmRelease, *, pretends: bool) -> Section:
    controller = ["enable_configless"]
    if known.preempt_signal_key == "SlurmctldParameters" and _preempts(cluster):
        controller.append(known.preempt_signal)
    if power_saving.autoscaled_groups(cluster):
        controller.append("cloud_dns")
    why = "Nodes fetch this file from the controller."
    if known.limits_requests:
        controller += _REQUEST_LIMIT
        why += " Commands of a user wait after 200 requests, then 20 a second; root and slurm have no limit."
    rows = [
        Setting("SlurmctldParameters", ",".join(controller), why),
        Setting("SlurmctldPidFile", "/run/slurmctld/slurmctld.pid"),
        Setting("SlurmdPidFile", "/run/slurmd.pid"),
        Setting("SlurmdSpoolDir", SLURMD_SPOOL),
    ]
    if pretends:
        rows.append(
            Setting(
                "SlurmdParameters",
                "config_overrides",
                "Uses the node definitions below: the local machines have less hardware than their plan.",
            )
        )
    return Section("daemons (they log to the journal)", tuple(rows))


def _resources(each: DefaultShare, nodes: Sequence[Hardware]) -> Section:
    rows = [
        Setting(
            "SelectType", "select/cons_tres", "Jobs may share a node: cores, memory and GPUs are allocated separately."
        ),
        Setting("SelectTypeParameters", "CR_Core_Memory"),
    ]
    # Also without GPUs: teams may have a limit on them, and a group with GPUs may be added
    rows.append(Setting("GresTypes", ",".join(["gpu", *_shared_gres(nodes)])))
    if each.cpus_per_gpu:
        rows += [
            Setting(
                "DefCpuPerGPU",
                str(each.cpus_per_gpu),
                "Defaults per GPU: its share of the node's CPUs and memory (MiB), so that",
            ),
            Setting(
                "DefMemPerGPU",
                str(each.memory_mib_per_gpu),
                "one-GPU jobs without their own requests can share a node.",
            ),
        ]
    rows.append(
        Setting(
            "DefMemPerCPU",
            str(each.memory_mib_per_cpu),
            "MiB, for jobs without GPUs; without a default a job takes all memory of its node.",
        )
    )
    rows += [
        Setting("MaxJobCount", "200000", "Room for several arrays of 10,000 in addition to the queue."),
        Setting("MaxArraySize", "10001", "Highest array index plus one."),
        Setting("EnforcePartLimits", "ANY", "Rejects a job at submission if no requested partition can ever run it."),
    ]
    return Section("resources", tuple(rows))


def _isolation(known: SlurmRelease, *, pretends: bool, task_prolog: bool) -> Section:
    plugins = "task/cgroup" if pretends else "task/cgroup,task/affinity"
    pinned = (
        "" if not pretends else "Without task/affinity: the local machine has fewer cores than its node definition."
    )
    return Section(
        "isolation of jobs",
        (
            Setting(
                "ProctrackType", "proctrack/cgroup", "Finds all processes of a job when it ends, also detached ones."
            ),
            Setting("TaskPlugin", plugins, pinned),
            Setting("JobAcctGatherType", "jobacct_gather/cgroup"),
            Setting("JobAcctGatherFrequency", "task=15"),
            Setting("PrologFlags", "Contain", "Creates an extern step in each job, into which SSH sessions are moved."),
            Setting("Prolog", PROLOG),
            Setting("Epilog", EPILOG),
            *(
                [
                    Setting(
                        "TaskProlog",
                        TASK_PROLOG,
                        "Gives jobs variables: those of MLflow and PBS that the file asks for.",
                    )
                ]
                if task_prolog
                else []
            ),
            Setting(
                "LaunchParameters", "use_interactive_step", "salloc starts its shell on the first node of the job."
            ),
            Setting(
                "PropagateResourceLimits",
                "CORE",
                "Jobs get only the core file limit of the submitting shell (ulimit -c), no other limit of it.",
            ),
            Setting("TmpFS", JOB_TMP, "The file system of the jobs' /tmp, in which --tmp requests space."),
            Setting("MpiDefault", known.mpi_plugin, "srun starts MPI programs without mpirun."),
        ),
    )


def _shared_gres(nodes: Iterable[Hardware]) -> list[str]:
    """Returns the GRES by which jobs share a GPU."""
    parts = {node.parts for node in nodes}
    return [
        name for name, used in (("shard", any(p.shards for p in parts)), ("mps", any(p.mps for p in parts))) if used
    ]


def _accounted(nodes: Sequence[Hardware]) -> str:
    """Returns the resources that are accounted besides Slurm's own. Types of GPUs are accounted where they differ in
    worth, because some are MIG instances."""
    types = sorted({name for node in nodes for name in node.gpu_counts}) if any(n.parts.mig for n in nodes) else []
    return ",".join(["gres/gpu", *(f"gres/gpu:{name}" for name in types), *(f"gres/{n}" for n in _shared_gres(nodes))])


def _accounting(cluster: Cluster, nodes: Sequence[Hardware]) -> Section:
    rows = [
        Setting("AccountingStorageType", "accounting_storage/slurmdbd"),
        Setting("AccountingStorageHost", cluster.head),
        # Also without GPUs: sacctmgr refuses a limit on a resource that is not accounted.
        Setting("AccountingStorageTRES", _accounted(nodes), "GPU time is recorded and can be limited."),
        Setting(
            "AccountingStorageEnforce",
            "associations,limits,qos,safe",
            "A job needs an account. safe: it starts only if it can finish within the GPU-hour cap of its team.",
        ),
        Setting("AccountingStoreFlags", "job_comment,job_script"),
        Setting("PrivateData", PRIVATE, PRIVATE_WHY),
    ]
    return Section("accounting", tuple(rows))


def _priority() -> Section:
    return Section(
        "priority: fair share by team",
        (
            Setting("PriorityType", "priority/multifactor"),
            Setting("PriorityDecayHalfLife", "7-0", "Usage of a week ago counts half."),
            Setting("PriorityCalcPeriod", "1", "Minutes; the lowest value that Slurm allows."),
            Setting("PriorityMaxAge", "7-0"),
            Setting("PriorityWeightFairshare", "100000"),
            Setting("PriorityWeightQOS", "10000"),
            Setting("PriorityWeightAge", "1000"),
            Setting("PriorityWeightJobSize", "100"),
            Setting(
                "PriorityFlags",
                "MAX_TRES",
                "Usage is the largest share of a node in any resource, not the sum of the shares.",
            ),
        ),
    )


def _preempts(cluster: Cluster) -> bool:
    return any(part.preempts for part in cluster.partitions) or any(qos.preempts for qos in cluster.qos)


def _preemption(cluster: Cluster, known: SlurmRelease) -> Section:
    if not _preempts(cluster):
        return Section("preemption", (Setting("PreemptType", "preempt/none"),))
    by_qos = any(qos.preempts for qos in cluster.qos)
    rows = [
        Setting("PreemptType", "preempt/qos" if by_qos else "preempt/partition_prio"),
        Setting("PreemptMode", "REQUEUE", "A preempted job is requeued."),
    ]
    if known.preempt_signal_key == "PreemptParameters":
        rows.append(
            Setting(
                known.preempt_signal_key,
                known.preempt_signal,
                "A preempted job first receives the signal that it requested (--signal).",
            )
        )
    return Section("preemption", tuple(rows))


def _scheduling(cluster: Cluster) -> Section:
    longest_s = max(
        (BACKFILL_LOOK_AHEAD_MAX_S if p.max_time_s is None else p.max_time_s for p in cluster.partitions),
        default=86400,
    )
    window_s = min(max(longest_s, 86400), BACKFILL_LOOK_AHEAD_MAX_S)
    parameters = [
        "sched_interval=5",  # seconds between two passes over the whole queue
        "batch_sched_delay=1",
        "default_queue_depth=500",
        "max_rpc_cnt=150",  # pauses scheduling while this many requests wait
        "bf_continue",
        # Lets slurmctld answer requests twice per second while backfill runs, instead of every two seconds.
        "bf_yield_interval=500000",
        "bf_yield_sleep=200000",
        "bf_interval=10",
        f"bf_window={-(-window_s // 60)}",  # minutes: as far ahead as the longest job
        f"bf_resolution={60 if window_s <= 2 * 86400 else 300}",
        "bf_max_job_test=2000",
        "bf_max_job_array_resv=20",
        "nohold_on_prolog_fail",
    ]
    rows = [
        Setting("SchedulerType", "sched/backfill"),
        Setting(
            "SchedulerParameters",
            ",".join(parameters),
            "Frequent passes over a long queue; a failed prolog requeues the job without a hold.",
        ),
    ]
    rows.append(Setting("ScronParameters", "enable", "People may have jobs submitted at set times: scrontab -e."))
    if cluster.switches:
        rows.append(Setting("TopologyPlugin", "topology/tree", "Places jobs below as few switches as possible."))
    return Section("scheduling", tuple(rows))


def _recovery(cluster: Cluster, known: SlurmRelease) -> Section:
    controller = takeover_settings() if cluster.controllers > 1 else (Setting("SlurmctldTimeout", "30"),)
    return Section(
        "faults and recovery",
        (
            Setting(
                "ReturnToService",
                "0",
                "A node that was down stays down until Headway or an admin has tested and resumed it.",
            ),
            Setting(
                "SlurmdTimeout",
                "300",
                "Seconds until slurmctld sets a silent node down. Headway's server fences it much earlier.",
            ),
            *controller,
            Setting("JobRequeue", "1", "A batch job is requeued if one of its nodes fails."),
            Setting(
                "KillWait",
                str(KILL_WAIT_SHORT_S if known.delays_requeue_by_kill_wait else KILL_WAIT_S),
                "Seconds from SIGTERM to SIGKILL at the time limit.",
            ),
            Setting("BatchStartTimeout", "30"),
            Setting(
                "PrologEpilogTimeout",
                "300",
                "Seconds; a prolog or epilog that takes longer is killed and drains its node.",
            ),
            Setting("UnkillableStepTimeout", str(max(120, least_unkillable_s(cluster.slurm)))),
            Setting("MessageTimeout", str(MESSAGE_TIMEOUT_S)),
            Setting("InactiveLimit", "0"),
            Setting("MinJobAge", "600", "Seconds that a finished job stays visible in squeue and scontrol."),
        ),
    )


def _power(cluster: Cluster) -> Section:
    rows = tuple(Setting(*row) for row in power_saving.settings(cluster))
    return Section("groups with autoscaling", rows)


def _mail(cluster: Cluster) -> Section:
    if not cluster.mail_relay:
        return Section(
            "mail",
            (Setting("MailProg", "/bin/true", "The cluster file has no mail_relay, so --mail-type sends no mail."),),
        )
    return Section("mail", (Setting("MailProg", "/usr/bin/mail"), Setting("MailDomain", cluster.name)))
