"""What scontrol, sacctmgr and sshare say of the made-up site of `slurm_sites`, and of the cluster that was made of it."""

from __future__ import annotations

_ASSOC = "Cluster|Account|User|Partition|ParentName|Share|GrpJobs|GrpTRES|GrpSubmit|GrpTRESMins|MaxJobs|MaxSubmit|QOS|Def QOS\n"
_QOS = "Name|Priority|Preempt|Flags|UsageFactor|GrpJobs|GrpSubmit|GrpTRES|MaxTRESPU|MaxJobsPU|MaxSubmitPU\n"

SITE = {
    "scontrol-config.txt": """Configuration data as of 2026-11-28T23:14:08
BOOT_TIME               = 2026-11-28T23:14:06
ClusterName             = helix
EnforcePartLimits       = NO
KillWait                = 30 sec
LaunchType              = launch/slurm
MaxNodeCount            = 6
PriorityWeightAge       = 5000
SlurmctldHost[0]        = mgmt1(10.1.0.1)
SLURM_VERSION           = 22.05.8
StateSaveLocation       = /var/spool/slurmctld
Slurmctld(primary) at mgmt1 is UP
""",
    "scontrol-partitions.txt": (
        "PartitionName=cpu Default=YES QoS=N/A GraceTime=0 MaxTime=2-00:00:00 Nodes=cn[001-004] TotalNodes=4 AllowAccounts=ALL\n"
        "PartitionName=GPU_long Default=NO QoS=gpulimit GraceTime=0 MaxTime=7-00:00:00 Nodes=gpu[1-2] TotalNodes=2 "
        "AllowAccounts=physics,bio\n"
        "PartitionName=urgent Default=NO QoS=N/A GraceTime=60 MaxTime=2-00:00:00 Nodes=ALL TotalNodes=6 DenyAccounts=bio\n"
    ),
    "scontrol-nodes.txt": "".join(
        f"NodeName=cn00{n} CPUTot=64 AvailableFeatures=skylake,ib Gres=(null) NodeAddr=cn00{n} RealMemory=256000 Weight=10 "
        "Partitions=cpu,urgent\n"
        for n in range(1, 5)
    )
    + "".join(
        f"NodeName=gpu{n} CPUTot=64 AvailableFeatures=ib Gres=gpu:a100:4(S:0-1) NodeAddr=10.1.2.{n} RealMemory=512000 Weight=100 "
        "Partitions=GPU_long,urgent\n"
        for n in (1, 2)
    ),
    "assoc.txt": _ASSOC + "helix|root||||1|||||||normal|\nhelix|root|root|||1|||||||normal|\n"
    "helix|science|||root|60|||||||normal|\nhelix|it|||root|40|||||||normal|\n"
    "helix|physics|||science|3||gres/gpu=4|||20||high,normal|\nhelix|bio|||science|1||||gres/gpu=60000|||normal|\n"
    "helix|it|dora|||1|||||||normal|\nhelix|physics|alice|||1|||||20||high,normal|\nhelix|physics|Bob.B|||1|||||20||high,normal|\n"
    "helix|bio|alice|||2|||||||normal|\nhelix|bio|carl|||1|||||2||normal|\n",
    "qos.txt": _QOS
    + "normal|0|||1.000000||||||\nhigh|100|normal||2.000000||||||\ngpulimit|0|||1.000000||||cpu=64,gres/gpu=2|4|\n",
    "sshare.txt": "root||0.000000\n root|root|0.009901\n it||0.396040\n  it|dora|1.000000\n science||0.594059\n  bio||0.250000\n"
    "   bio|alice|0.666667\n   bio|carl|0.333333\n  physics||0.750000\n   physics|alice|0.500000\n   physics|Bob.B|0.500000\n",
}

CLUSTER = {
    "scontrol-config.txt": """ClusterName             = helix
DefMemPerCPU            = 2048
EnforcePartLimits       = ANY
KillWait                = 30 sec
MaxNodeCount            = 2
PriorityWeightAge       = 5000
SlurmctldHost[0]        = helix-head(10.67.1.10)
SLURM_VERSION           = 24.11.5
StateSaveLocation       = /srv/headway-state/slurmctld
""",
    "scontrol-partitions.txt": (
        "PartitionName=cpu Default=YES QoS=N/A GraceTime=120 MaxTime=2-00:00:00 Nodes=helix-cn-1-1 TotalNodes=1 "
        "AllowAccounts=ALL\n"
        "PartitionName=gpu_long Default=NO QoS=partition.gpu_long GraceTime=120 MaxTime=7-00:00:00 Nodes=helix-gpu-1-1 "
        "TotalNodes=1 AllowAccounts=physics,bio\n"
        "PartitionName=urgent Default=NO QoS=N/A GraceTime=60 MaxTime=2-00:00:00 Nodes=ALL TotalNodes=2 "
        "AllowAccounts=it,physics\n"
    ),
    "scontrol-nodes.txt": (
        "NodeName=helix-cn-1-1 CPUTot=64 AvailableFeatures=cn,skylake,ib Gres=(null) RealMemory=256000 Weight=10 "
        "Partitions=cpu,urgent\n"
        "NodeName=helix-gpu-1-1 CPUTot=64 AvailableFeatures=gpu,ib Gres=gpu:a100:4 RealMemory=512000 Weight=100 "
        "Partitions=gpu_long,urgent\n"
    ),
    "sacctmgr-assoc.txt": _ASSOC
    + "helix|root||||1|||||||normal|\nhelix|default|||root|1|||||||default|default\n"
    "helix|science|||root|60|||||||science|science\nhelix|it|||root|40|||||||it|it\nhelix|physics|||science|3||gres/gpu=4|||||high,physics|physics\n"
    "helix|bio|||science|1|||||||bio|bio\nhelix|it|dora|||1|||||||it|it\n"
    "helix|physics|alice|||1|20||||||high,physics|physics\n"
    "helix|bio|alice|||1|||||||bio|bio\nhelix|bio|carl|||1|2||||||bio|bio\n",
    "sacctmgr-qos.txt": _QOS
    + "normal|0|||1.000000||||||\npartition.gpu_long|0||NoDecay|1.000000||||cpu=64,gres/gpu=2|4|\n"
    "science|0||NoDecay|1.000000||||||\nit|0||NoDecay|1.000000||||||\nphysics|0||NoDecay|1.000000||||||\n"
    "bio|0||NoDecay|1.000000||||||\nhigh|100|||2.000000||||||\n",
    "sshare.txt": "root||0.000000\n root|root|0.009804\n default||0.009804\n it||0.392157\n  it|dora|1.000000\n"
    " science||0.588235\n  bio||0.250000\n   bio|alice|0.500000\n   bio|carl|0.500000\n  physics||0.750000\n"
    "   physics|alice|1.000000\n",
    "users.txt": "root:0\nalice:2001\ndora:20000\n",
    "slurm.conf": "# Written by Headway from the cluster file; changes made here are lost.\n"
    "# Rejects a job at submission if no requested partition can ever run it.\nEnforcePartLimits=ANY\nDefMemPerCPU=2048\n",
}  # fmt: skip
