"""Keys of slurm.conf and its sister files that a cluster file does not have: why, and what to do instead.

Keys that a cluster file allows are in `headway.catalog.allowed_slurm_keys`; keys with a field of their own are decided in
the modules of their subject."""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """Why a key is not carried, and what to do instead."""

    why: str
    instead: str


_NOTHING = "nothing to do"
_ASK = "say in an issue that you need it"


def _table(*rows: tuple[str, str, str]) -> dict[str, Reason]:
    """Returns key in lower case -> reason, from rows of (keys separated by blanks, why, instead)."""
    return {key.lower(): Reason(why, instead) for keys, why, instead in rows for key in keys.split()}


CLUSTER_REASONS = _table(
    (
        "StateSaveLocation SlurmdSpoolDir SlurmctldPidFile SlurmdPidFile PluginDir PlugStackConfig SlurmdRunDir TmpFS "
        "UnkillableStepProgram CoreSpecPlugin BcastParameters JobCheckpointDir LaunchType SlurmctldPlugstack RequiresProlog",
        "Headway has paths and programs of its own", _NOTHING,
    ),
    (
        "SlurmctldLogFile SlurmdLogFile SlurmSchedLogFile SlurmSchedLogLevel SlurmctldSyslogDebug SlurmdSyslogDebug "
        "LogTimeFormat SlurmdbdLogFile SyslogDebug",
        "daemons log to the journal", "read it with journalctl -u slurmctld on the head, -u slurmd on nodes",
    ),
    (
        "AuthType AuthInfo AuthAltTypes AuthAltParameters CredType CryptoType JobCredentialPrivateKey "
        "JobCredentialPublicCertificate HashPlugin TLSType TLSParameters CertmgrType CertgenType CertmgrParameters "
        "CertgenParameters DisableRootJobs",
        "Headway makes keys for MUNGE and tokens of its own",
        "give the site's MUNGE key with secrets: {munge: {file: ...}} if other machines use it",
    ),
    ("SlurmUser SlurmdUser DbdUser", "Headway's daemons run as slurm (slurmctld, slurmdbd) and root (slurmd)", _NOTHING),
    (
        "SlurmctldPort SlurmdPort SchedulerPort SlurmctldAddr DbdPort DbdAddr DbdHost DbdBackupHost StoragePort",
        "Headway uses Slurm's usual ports and the addresses of its machines", _NOTHING,
    ),
    ("SrunPortRange", "Headway sets srun's ports to 60001-63000 and opens them in the firewall", _NOTHING),
    (
        "AccountingStorageType AccountingStorageHost AccountingStorageBackupHost AccountingStorageExternalHost "
        "AccountingStoragePort AccountingStorageUser AccountingStorageLoc AccountingStoragePass AccountingStorageParameters "
        "DefaultStorageHost DefaultStorageLoc DefaultStoragePass DefaultStoragePort DefaultStorageType DefaultStorageUser",
        "Headway has slurmdbd and its database on the head",
        "headway adopt brings the site's database along",
    ),
    (
        "AccountingStorageEnforce AccountingStoreFlags AccountingStorageTRES AccountingStoreJobComment JobAcctGatherType "
        "JobAcctGatherFrequency JobAcctGatherParams TrackWCKey",
        "Headway sets what is accounted: accounts and limits are enforced, GPU time is recorded", _NOTHING,
    ),
    (
        "AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInfinibandType AcctGatherInterconnectType AcctGatherProfileType "
        "AcctGatherNodeFreq ExtSensorsType ExtSensorsFreq",
        "Headway measures energy, network and file systems with its agent", "see headway energy and the page Metrics",
    ),
    (
        "JobCompType JobCompHost JobCompLoc JobCompPass JobCompPort JobCompUser JobCompParams JobCompPassScript",
        "Headway keeps completed jobs in accounting only", "read them with sacct, or headway usage --runs -o json",
    ),
    (
        "SelectType SelectTypeParameters FastSchedule MemLimitEnforce",
        "Headway allocates cores, memory and GPUs separately (cons_tres, CR_Core_Memory)",
        "for whole nodes set OverSubscribe: EXCLUSIVE in a partition's slurm",
    ),
    (
        "ProctrackType TaskPlugin TaskPluginParam TaskPluginParams JobContainerType PrologFlags ConstrainCores CgroupMountpoint "
        "CgroupAutomount CgroupReleaseAgentDir UsePAM PAMServiceName PropagateResourceLimits PropagateResourceLimitsExcept "
        "PropagatePrioProcess UseSpecResources JobContainerPlugin",
        "Headway isolates jobs with cgroups and a private /tmp", _NOTHING,
    ),
    (
        "SchedulerType SchedulerParameters SchedulerTimeSlice SchedulerRootFilter SchedulerAuth SlurmctldParameters "
        "SlurmdParameters SchedParameters SlurmctldSyncProgram CommunicationParameters RoutePlugin LaunchParameters "
        "DependencyParameters TopologyParam TopologyPlugin SwitchParameters InteractiveStepOptions",
        "Headway computes it from the cluster's size, partitions and fabric", "headway plan --diff shows the value",
    ),
    (
        "PreemptType PreemptMode PreemptExemptTime PreemptParameters",
        "Headway preempts by partition or by QOS", "see preempts and grace_time of the partitions, or of qos",
    ),
    (
        "PriorityType PriorityUsageResetPeriod PrioritySiteFactorPlugin PrioritySiteFactorParameters PriorityParameters",
        "Headway uses priority/multifactor, in which use fades", "limits.gpu_hours caps a team for each period",
    ),
    ("PrivateData", "all users see the queue, a team's members its usage", _NOTHING),
    (
        "Prolog Epilog TaskProlog TaskEpilog SrunProlog SrunEpilog PrologSlurmctld EpilogSlurmctld PrologEpilogTimeout "
        "PrologTimeout EpilogTimeout EpilogMsgTime HealthCheckProgram HealthCheckInterval HealthCheckNodeState",
        "Headway's prolog, epilog and agent check nodes and prepare jobs",
        "see the scripts below: scripts.prolog and scripts.epilog run in addition to Headway's; --with-scripts copies them",
    ),
    (
        "JobSubmitPlugins CliFilterPlugins CliFilterParameters JobSubmitParameters",
        "a cluster file has one plugin at submission: lua, with scripts.job_submit",
        "name job_submit.lua there; express rules of other plugins by partitions, teams and limits",
    ),
    (
        "ReturnToService",
        "Headway tests a node that was down before it returns", _NOTHING,
    ),
    (
        "MailProg", "Headway sends mail through a server", "give mail: {relay: HOST:PORT}",
    ),
    (
        "SuspendProgram ResumeProgram SuspendTime SuspendRate ResumeRate SuspendTimeout ResumeTimeout SuspendExcNodes "
        "SuspendExcParts SuspendExcStates ResumeFailProgram PowerParameters PowerPlugin",
        "Headway starts and stops nodes itself", "give groups.NAME.idle, min and max for groups that scale by themselves",
    ),
    ("RebootProgram", "Headway restarts nodes itself", "headway node reboot NODE"),
    (
        "FederationParameters BurstBufferType ClusterLicenses DataParserParameters",
        "a cluster file does not have it", _ASK,
    ),
    (
        "GresTypes", "the hardware of the groups says which GPUs there are", _NOTHING,
    ),
    ("MpiDefault MpiParams SwitchType", "srun starts MPI programs by PMIx", "give --mpi to srun for another one"),
    ("NodeFeaturesPlugins", "Headway's nodes keep their features", "give groups.NAME.features"),
    (
        "SlurmctldTimeout SlurmctldPrimaryOnProg SlurmctldPrimaryOffProg DebugFlags GroupUpdateForce GroupUpdateTime CacheGroups "
        "EioTimeout GetEnvTimeout FirstJobId MaxJobId KeepAliveTime ResumeTimeouts JobFileAppend VSizeFactor X11Parameters "
        "MaxDBDMsgs MaxNodeCount MCSPlugin MCSParameters GpuFreqDef CpuFreqDef CpuFreqGovernors DisableLaunchCheck ResvEpilog "
        "ResvProlog ScronParameters PrepPlugins PrepParameters SiteFactorPlugin NamespaceType "
        "UrlParserType StepMgr MetricsType MetricsParameters HttpParserType AllowSpecResourcesUsage SlurmSchedLog "
        "MaxMemPerNode MaxMemPerCPU DefMemPerNode SbcastParameters SuspendTimeouts DefCpuPerGPU DefMemPerCPU "
        "DefMemPerGPU",
        "a cluster file does not have it",
        "keep Headway's default; headway plan --diff shows it",
    ),
)  # fmt: skip

NODE_REASONS = _table(
    ("State", "Headway keeps the state of nodes", "drain it with headway node drain NODE"),
    ("NodeAddr NodeHostname Port BcastAddr", "Headway connects to the addresses under hosts", "correct hosts if one is missing"),
    ("Sockets SocketsPerBoard CoresPerSocket ThreadsPerCore Boards", "Headway reads it from each machine", "nothing to do"),
    ("TmpDisk", "Headway reads it from each machine", "nothing to do"),
    (
        "CoreSpecCount CPUSpecList CpuSpecList MemSpecLimit RestrictedCoresPerGPU",
        "Headway keeps 4 % of the memory of each machine for the system, and no cores",
        "nothing to do, unless daemons of yours need cores",
    ),
    ("Reason", "the node's state is not carried", "give it to headway node drain NODE"),
    ("MemoryMiB CpuBind GresConfIndex ExclusiveTopo Topology", "a cluster file does not have it", "nothing to do"),
)  # fmt: skip

PARTITION_REASONS = _table(
    ("AllowGroups", "partitions are open to teams, not to Linux groups; without teams to all", "give the partition teams: [...]"),
    ("AllowQos DenyQos", "a partition is for teams, not for QOS; without teams for all", "give the partition teams or limits"),
    ("AllowAllocNodes", "jobs are submitted on the head and on nodes", "nothing to do"),
    ("Alternate", "a cluster file has no alternate partition", "users give several: --partition a,b"),
    ("RootOnly", "a cluster file has no partitions for root alone", "give the partition a team of its own"),
    ("SelectTypeParameters CR", "Headway allocates cores, memory and GPUs in all partitions", "nothing to do"),
    ("CpuBind SuspendTime SuspendTimeout ResumeTimeout PowerDownOnIdle", "a cluster file does not have it", "nothing to do"),
    ("Priority", "Slurm has PriorityTier and PriorityJobFactor instead", "see tier of the partition"),
    ("DefMemPerNode", "the partition's line takes DefMemPerCPU and DefMemPerGPU", "give one of them in the partition's slurm"),
    ("Topology", "the cluster has one topology: fabric", "see fabric"),
    ("JobDefaults", "a cluster file takes DefCpuPerGPU and DefMemPerGPU", "give them in the partition's slurm"),
)  # fmt: skip

OTHER_FILES = {
    "cgroup.conf": Reason("Headway writes cgroup.conf: devices, cores and memory are constrained", "nothing to do"),
    "slurmdbd.conf": Reason(
        "Headway has slurmdbd and its database on the head; jobs and usage are never purged",
        "headway adopt brings the site's database along",
    ),
    "acct_gather.conf": Reason("Headway measures energy and network with its agent", "see the page Metrics"),
    "job_container.conf": Reason("each job has its own /tmp and /dev/shm by Headway's plugin", "nothing to do"),
    "mpi.conf": Reason("Headway writes mpi.conf", "give --mpi to srun for another plugin"),
    "helpers.conf": Reason("a cluster file has no node features that change", "give groups.NAME.features"),
    "oci.conf": Reason("Headway writes oci.conf for its container runtime", "nothing to do"),
    "burst_buffer.conf": Reason("a cluster file has no burst buffers", "mount the file system: storage.volumes"),
    "knl.conf": Reason("Headway does not run these machines", "leave them out"),
    "scrun.lua": Reason("Headway has a container runtime of its own", "see docs/howto/containers.md"),
}
