"""Renders /etc/slurm/slurm.conf, the controller's file. Nodes fetch it from the controller (configless)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from headway.catalog.releases import SlurmRelease, slurm_release
from headway.catalog.slurm_keys import MESSAGE_TIMEOUT_S, least_unkillable_s
from headway.domain.cluster import Cluster, Site
from headway.render.escaping import MARK, pair, path, slurm_text
from headway.render.machine_paths import EPILOG, JOB_TMP, JWT_KEY, PROLOG
from headway.render.slurm import power_saving
from headway.render.slurm.conf_syntax import Line
from headway.render.slurm.node_hardware import Share, distinct_hardware, hardware_is_simulated, smallest_gpu_share
from headway.render.slurm.nodes_partitions import node_lines, partition_lines

PATH = "/etc/slurm/slurm.conf"
LEADS = "/usr/lib/headway/leads"
LEADS_WHY = "It says in the state folder who leads: a controller that comes late finds another name there."
SUBMITTED_WHY = "sbatch notes its command in the home: a controller that is killed may not have saved it yet."
# The same rule as in headway.services.authorization: everybody sees the queue; only a team's members see its use.
PRIVATE = "usage"
PRIVATE_WHY = "Every user sees the whole queue; usage is visible to its user and the user's team."
SRUN_PORTS = (60001, 63000)  # ports where srun listens for its tasks, on owned machines
SLURMCTLD_TIMEOUT_S = 4  # the minimum: below that, slurmctld writes its heartbeat without a pause
BACKFILL_LOOK_AHEAD_MAX_S = 14 * 86400


@dataclass(frozen=True, slots=True)
class Setting:
    """One cluster-wide key and the reason for its value ("" if the name says enough)."""

    key: str
    value: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Settings under one heading."""

    title: str
    settings: tuple[Setting, ...]


def slurm_conf(cluster: Cluster, site: Site) -> str:
    """Returns the whole file. Raises InvalidSpec for a value that can't be written on a line."""
    known = slurm_release(cluster.slurm_version)
    pretends = hardware_is_simulated(cluster, site)
    sections = [
        _control(cluster, site),
        _daemons(cluster, known, pretends=pretends),
        _resources(smallest_gpu_share(distinct_hardware(cluster, site, cluster.slot_names))),
        _isolation(known, pretends=pretends),
        _accounting(cluster),
        _priority(),
        _preemption(cluster, known),
        _scheduling(cluster),
        _recovery(cluster, known),
        _power(cluster),
        _mail(cluster),
    ]
    lines = [Line(comment=MARK), *_settings(_with_overrides(sections, _said(cluster.slurm)))]
    lines += [Line(), *node_lines(cluster, site), Line(), *partition_lines(cluster, site)]
    return slurm_text(lines, "slurm")


def _settings(sections: Iterable[Section]) -> Iterator[Line]:
    for section in sections:
        if section.settings:
            yield Line()
            yield Line(comment=f"--- {section.title}")
        for setting in section.settings:
            yield from pair(setting.key, setting.value, setting.why)


def _said(slurm: Mapping[str, str]) -> dict[str, str]:
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
        state = "Where every controller reads and writes it: the next one goes on from where the last one was."
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
                "Only messages whose content is part of what their sender signed.",
            ),
            Setting("StateSaveLocation", path(cluster.state_folder, "storage.state"), state),
            Setting("CliFilterPlugins", "lua", SUBMITTED_WHY),
            *_ports(site),
        ),
    )


def _ports(site: Site) -> tuple[Setting, ...]:
    """Returns srun's ports for owned machines, whose firewall opens them to the cluster's machines only."""
    first, last = SRUN_PORTS
    why = "Tasks speak to srun on these; the firewall keeps others from them."
    return (Setting("SrunPortRange", f"{first}-{last}", why),) if site.own else ()


def _daemons(cluster: Cluster, known: SlurmRelease, *, pretends: bool) -> Section:
    controller = ["enable_configless"]
    if known.preempt_signal_key == "SlurmctldParameters" and _preempts(cluster):
        controller.append(known.preempt_signal)
    if power_saving.autoscaled_groups(cluster):
        controller.append("cloud_dns")
    rows = [
        Setting("SlurmctldParameters", ",".join(controller), "Nodes fetch this file from the controller."),
        Setting("SlurmctldPidFile", "/run/slurmctld/slurmctld.pid"),
        Setting("SlurmdPidFile", "/run/slurmd.pid"),
        Setting("SlurmdSpoolDir", "/var/lib/slurm/slurmd"),
    ]
    if pretends:
        rows.append(
            Setting(
                "SlurmdParameters",
                "config_overrides",
                "The machines have less than the plan says: nodes are taken to be as written below.",
            )
        )
    return Section("daemons (they log to the journal)", tuple(rows))


def _resources(each: Share) -> Section:
    rows = [
        Setting(
            "SelectType", "select/cons_tres", "Jobs share a node: cores, memory and GPUs are given out one by one."
        ),
        Setting("SelectTypeParameters", "CR_Core_Memory"),
    ]
    # Also without GPUs: teams may have a limit on them, and a group with GPUs may be added
    rows.append(Setting("GresTypes", "gpu"))
    if each.cpus_per_gpu:
        rows += [
            Setting(
                "DefCpuPerGPU", str(each.cpus_per_gpu), "A GPU brings its part of the node's CPUs and memory, so that"
            ),
            Setting(
                "DefMemPerGPU", str(each.memory_mib_per_gpu), "one-GPU jobs that ask for neither share a node (MiB)."
            ),
        ]
    rows.append(
        Setting(
            "DefMemPerCPU",
            str(each.memory_mib_per_cpu),
            "Without a default a job takes the node's whole memory (MiB; jobs without GPUs).",
        )
    )
    rows += [
        Setting("MaxJobCount", "200000", "Room for several arrays of 10,000 in addition to the queue."),
        Setting("MaxArraySize", "10001", "Highest array index plus one."),
        Setting(
            "EnforcePartLimits", "ANY", "What no partition of a job could ever run is refused at once, not queued."
        ),
    ]
    return Section("resources", tuple(rows))


def _isolation(known: SlurmRelease, *, pretends: bool) -> Section:
    plugins = "task/cgroup" if pretends else "task/cgroup,task/affinity"
    pinned = "" if not pretends else "No pinning to cores: the machine does not have the cores it is said to have."
    return Section(
        "isolation of jobs",
        (
            Setting("ProctrackType", "proctrack/cgroup", "A job's processes can't hide from the end of the job."),
            Setting("TaskPlugin", plugins, pinned),
            Setting("JobAcctGatherType", "jobacct_gather/cgroup"),
            Setting("JobAcctGatherFrequency", "task=15"),
            Setting("PrologFlags", "Contain", "Every job has a place that SSH sessions into it are put in."),
            Setting("Prolog", PROLOG),
            Setting("Epilog", EPILOG),
            Setting("LaunchParameters", "use_interactive_step", "salloc opens its shell on the first node of the job."),
            Setting(
                "PropagateResourceLimits",
                "CORE",
                "Limits of login sessions stay there, but for core files: none unless the submitter asked (ulimit -c).",
            ),
            Setting("TmpFS", JOB_TMP, "Where /tmp of a job is: --tmp means space there."),
            Setting("MpiDefault", known.mpi_plugin, "srun starts MPI programs by itself."),
        ),
    )


def _accounting(cluster: Cluster) -> Section:
    rows = [
        Setting("AccountingStorageType", "accounting_storage/slurmdbd"),
        Setting("AccountingStorageHost", cluster.head),
        # Also without GPUs: sacctmgr refuses a limit on a resource that is not accounted.
        Setting("AccountingStorageTRES", "gres/gpu", "GPU time is recorded and can be limited."),
        Setting(
            "AccountingStorageEnforce",
            "associations,limits,qos,safe",
            "No job runs without an account; one that could not finish within its team's cap does not start.",
        ),
        Setting("AccountingStoreFlags", "job_comment,job_script"),
        Setting("PrivateData", PRIVATE, PRIVATE_WHY),
    ]
    return Section("accounting", tuple(rows))


def _priority() -> Section:
    return Section(
        "priority: the team that used less goes first",
        (
            Setting("PriorityType", "priority/multifactor"),
            Setting("PriorityDecayHalfLife", "7-0", "Use of a week ago counts half."),
            Setting("PriorityCalcPeriod", "1", "Minutes; the shortest there is."),
            Setting("PriorityMaxAge", "7-0"),
            Setting("PriorityWeightFairshare", "100000"),
            Setting("PriorityWeightQOS", "10000"),
            Setting("PriorityWeightAge", "1000"),
            Setting("PriorityWeightJobSize", "100"),
            Setting(
                "PriorityFlags", "MAX_TRES", "A job counts by the largest of its parts of a node, not by their sum."
            ),
        ),
    )


def _preempts(cluster: Cluster) -> bool:
    return any(partition.preempts for partition in cluster.partitions)


def _preemption(cluster: Cluster, known: SlurmRelease) -> Section:
    if not _preempts(cluster):
        return Section("preemption", (Setting("PreemptType", "preempt/none"),))
    rows = [
        Setting("PreemptType", "preempt/partition_prio"),
        Setting("PreemptMode", "REQUEUE", "A victim goes back to the queue and runs again."),
    ]
    if known.preempt_signal_key == "PreemptParameters":
        rows.append(
            Setting(
                known.preempt_signal_key,
                known.preempt_signal,
                "The victim first gets the signal it asked for (--signal).",
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
            "Looks often, far and deep enough; a failing prolog requeues the job without holding it.",
        ),
    ]
    if cluster.switches:
        rows.append(Setting("TopologyPlugin", "topology/tree", "Jobs are kept under as few switches as can be."))
    return Section("scheduling", tuple(rows))


def _recovery(cluster: Cluster, known: SlurmRelease) -> Section:
    controller: tuple[Setting, ...] = (Setting("SlurmctldTimeout", "30"),)
    if cluster.controllers > 1:
        controller = (
            Setting(
                "SlurmctldTimeout", str(SLURMCTLD_TIMEOUT_S), "Seconds of silence after which the next one takes over."
            ),
            Setting(
                "TCPTimeout", "1", "Seconds; who takes over asks the dead head's slurmdbd four times before it works."
            ),
            Setting("SlurmctldPrimaryOnProg", LEADS, LEADS_WHY),
        )
    return Section(
        "faults and recovery",
        (
            Setting("ReturnToService", "0", "A node that was down is tested before it gets work again."),
            Setting(
                "SlurmdTimeout",
                "300",
                "Seconds until a silent node is down. Headway fences it long before, while its server runs.",
            ),
            *controller,
            Setting("JobRequeue", "1", "A batch job whose node dies goes back to the queue."),
            Setting("KillWait", str(known.kill_wait_s), "Seconds from SIGTERM to SIGKILL at the time limit."),
            Setting("BatchStartTimeout", "30"),
            Setting("PrologEpilogTimeout", "300", "Seconds; one that hangs is ended and its node drained."),
            Setting("UnkillableStepTimeout", str(max(120, least_unkillable_s(cluster.slurm)))),
            Setting("MessageTimeout", str(MESSAGE_TIMEOUT_S)),
            Setting("InactiveLimit", "0"),
            Setting("MinJobAge", "600", "Seconds a finished job stays visible to squeue and scontrol."),
        ),
    )


def _power(cluster: Cluster) -> Section:
    rows = tuple(Setting(*row) for row in power_saving.settings(cluster))
    return Section("groups that scale by themselves", rows)


def _mail(cluster: Cluster) -> Section:
    if not cluster.mail_relay:
        return Section(
            "mail", (Setting("MailProg", "/bin/true", "No mail_relay in the cluster file: --mail-type sends none."),)
        )
    return Section("mail", (Setting("MailProg", "/usr/bin/mail"), Setting("MailDomain", cluster.name)))
