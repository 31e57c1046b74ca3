"""A made-up Slurm site, as files of an import; small sites for single tests."""

from __future__ import annotations

from headway.slurm_import.importer import Imported, SiteFiles, import_site
from headway.slurm_import.verdicts import Verdict

SLURM_CONF = r"""# a made-up site
ClusterName=Helix
SlurmctldHost=mgmt1(10.1.0.1)
SlurmctldHost=mgmt2(10.1.0.2)
StateSaveLocation=/var/spool/slurmctld
SlurmctldDebug=3
AccountingStoragePass=verysecret
priorityweightage=5000   # lower case
PriorityWeightFairshare=40000
SelectType=select/cons_tres
Licenses=matlab:10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=30
Bogus=1
broken line, password=verysecret
Include conf.d/*.conf
Include slurm.conf
Include /etc/slurm/missing.conf
NodeName=DEFAULT State=UNKNOWN RealMemory=256000 Sockets=2 CoresPerSocket=32 ThreadsPerCore=1
NodeName=cn[001-004] Feature=skylake,ib Weight=10
NodeName=gpu[1-2] NodeAddr=10.1.2.[1-2] Gres=gpu:a100:4 CPUs=64 RealMemory=512000 \
   Feature=ib Weight=100
"""

FILES = {
    "slurm.conf": SLURM_CONF,
    "conf.d/partitions.conf": """PartitionName=DEFAULT MaxTime=2-00:00:00 State=UP
PartitionName=cpu Nodes=cn[001-004] Default=YES PriorityTier=1 TRESBillingWeights="CPU=1.0,Mem=0.25G"
PartitionName=GPU_long Nodes=gpu[1-2] AllowAccounts=physics,bio QOS=gpulimit MaxTime=7-0 PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF DenyAccounts=bio GraceTime=60
""",
    "topology.conf": "SwitchName=leaf1 Nodes=cn[001-002]\nSwitchName=leaf2 Nodes=cn[003-004],gpu1\n"
    "SwitchName=leaf3 Nodes=gpu2\nSwitchName=core Switches=leaf[1-3]\n",
    "gres.conf": "NodeName=gpu[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-3] Cores=0-31\n",
    "slurmdbd.conf": "DbdHost=mgmt1\nStoragePass=verysecret\nStorageType=accounting_storage/mysql\n",
    "cgroup.conf": "ConstrainCores=yes\nAllowedSwapSpace=10\n",
    "plugstack.conf": "required /opt/spank/x.so token=verysecret\n",
    "prolog.sh": "#!/bin/sh\nexport KEY=verysecret\n",
    "sacctmgr.dump": r"""# To edit this file start with a cluster line for the new cluster
Cluster - 'helix':DefaultQOS='normal':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':AdminLevel='Administrator':DefaultAccount='root':Fairshare=1
Account - 'science':Description='all: of it':Organization='uni':Fairshare=60
Account - 'it':Description='it':Organization='uni':Fairshare=40
Parent - 'science'
Account - 'physics':Description='physics':Fairshare=3:GrpTRES='gres/gpu=4':MaxJobs=20:QOS='normal,high'
Account - 'bio':Description='bio':Fairshare=1:GrpTRESMins='gres/gpu=60000'
Parent - 'it'
User - 'dora':DefaultAccount='it':Fairshare=1
Parent - 'physics'
User - 'alice':Coordinator='physics':DefaultAccount='physics':Fairshare=1
User - 'Bob.B':DefaultAccount='physics':Fairshare=1
Parent - 'bio'
User - 'alice':DefaultAccount='physics':Fairshare=2
User - 'carl':DefaultAccount='bio':Fairshare=1:MaxJobs=2
""",
    "qos.txt": "Name|Priority|Preempt|Flags|UsageFactor|MaxTRESPU|MaxJobsPU|MaxWall\n"
    "normal|0|||1.000000|||\nhigh|100|normal||2.000000|||\ngpulimit|0|||1.000000|cpu=64,gres/gpu=2|4|\n",
    "passwd": "root:x:0:0:root:/root:/bin/bash\nalice:x:2001:2001:Alice Liddell:/home/alice:/bin/bash\n"
    "zoe:x:2003:2003::/home/zoe:/bin/bash\n",
    "group": "root:x:0:\nphysics:x:3000:alice\n",
    "fstab": "UUID=1 / ext4 defaults 0 1\nfiler:/home /home nfs4 rw 0 0\nfiler:/proj /proj nfs4 rw,hard 0 0\n",
}  # fmt: skip
SECRET = "verysecret"

NODES = "ClusterName=lab\nSlurmctldHost=head\nNodeName=n[1-4] CPUs=8 RealMemory=16000\n"


def imported(**texts: str) -> Imported:
    """Returns the import of a site; slurm.conf has one group of nodes unless it is given."""
    files = {key.replace("__", "."): text for key, text in texts.items()}
    return import_site(SiteFiles({"slurm.conf": NODES, **files}))


def verdict(site: Imported, key: str, *, value: str = "", record: str = "") -> Verdict:
    found = [
        (item, verdict)
        for item, verdict in site.entries
        if item.key.lower() == key.lower() and value in item.value and record in item.context
    ]
    assert found, f"{key} was not read"
    return found[0][1]
