"""What Slurm does without a key (slurm.conf(5) of 22.05 to 26.05): a key with this value says nothing."""

from __future__ import annotations

SLURM_DEFAULTS = {
    key.lower(): value
    for key, value in {
        "AccountingStorageType": "accounting_storage/none", "BatchStartTimeout": "10", "CompleteWait": "0",
        "CoreSpecPlugin": "core_spec/none", "CpuFreqGovernors": "OnDemand,Performance,UserSpace",
        "DefMemPerNode": "0", "DefMemPerCPU": "0", "DisableRootJobs": "NO", "EioTimeout": "60",
        "EnforcePartLimits": "NO", "EpilogMsgTime": "2000", "FairShareDampeningFactor": "1", "FirstJobId": "1",
        "GetEnvTimeout": "2", "GroupUpdateForce": "1", "GroupUpdateTime": "600", "HealthCheckInterval": "0",
        "InactiveLimit": "0", "JobCompType": "jobcomp/none", "JobContainerType": "job_container/none", "JobFileAppend": "0",
        "JobRequeue": "1", "KillOnBadExit": "0", "KillWait": "30", "LogTimeFormat": "iso8601_ms", "MailProg": "/bin/mail",
        "MaxArraySize": "1001", "MaxJobCount": "10000", "MaxJobId": "67043328", "MaxMemPerCPU": "0", "MaxMemPerNode": "0",
        "MaxStepCount": "40000", "MaxTasksPerNode": "512", "MCSPlugin": "mcs/none", "MessageTimeout": "10", "MinJobAge": "300",
        "MpiDefault": "none", "OverTimeLimit": "0", "PluginDir": "/usr/lib64/slurm", "PriorityCalcPeriod": "5",
        "PriorityDecayHalfLife": "7-0", "PriorityFavorSmall": "NO", "PriorityMaxAge": "7-0", "PriorityUsageResetPeriod": "NONE",
        "PriorityWeightAge": "0", "PriorityWeightAssoc": "0", "PriorityWeightFairshare": "0", "PriorityWeightJobSize": "0",
        "PriorityWeightPartition": "0", "PriorityWeightQOS": "0", "PropagatePrioProcess": "0", "ResvOverRun": "0",
        "SchedulerTimeSlice": "30", "SlurmctldDebug": "info", "SlurmctldPort": "6817", "SlurmctldTimeout": "120",
        "SlurmdDebug": "info", "SlurmdPort": "6818", "SlurmdTimeout": "300", "SlurmdUser": "root", "SwitchType": "switch/none",
        "TCPTimeout": "2", "TmpFS": "/tmp", "TopologyPlugin": "topology/default", "TrackWCKey": "NO", "TreeWidth": "16",
        "UsePAM": "0", "VSizeFactor": "0", "WaitTime": "0", "DefaultStorageType": "accounting_storage/none",
        "AccountingStoragePort": "6819", "UnkillableStepTimeout": "60", "CryptoType": "crypto/munge", "CredType": "cred/munge",
        "AuthType": "auth/munge", "SchedulerType": "sched/backfill", "JobSubmitPlugins": "", "RebootProgram": "",
        "AcctGatherNodeFreq": "0", "AcctGatherEnergyType": "acct_gather_energy/none", "PreemptType": "preempt/none",
        "AcctGatherInfinibandType": "acct_gather_infiniband/none", "AcctGatherInterconnectType": "acct_gather_interconnect/none",
        "AcctGatherFilesystemType": "acct_gather_filesystem/none", "AcctGatherProfileType": "acct_gather_profile/none",
        "ExtSensorsType": "ext_sensors/none", "ExtSensorsFreq": "0", "RequeueExit": "", "RequeueExitHold": "",
        "SuspendTime": "NONE", "ResumeTimeout": "60", "SuspendTimeout": "30", "SuspendRate": "60", "ResumeRate": "300",
        "LaunchType": "launch/slurm", "RoutePlugin": "route/default", "PowerPlugin": "", "GpuFreqDef": "high,memory=high",
        "MaxDBDMsgs": "0", "PropagateResourceLimits": "ALL", "DependencyParameters": "", "PreemptMode": "OFF",
    }.items()
}  # fmt: skip
