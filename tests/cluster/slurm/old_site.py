"""A hand-made Slurm site on a bare machine, as an administrator would have set it up without Headway: MUNGE, MariaDB,
slurmdbd with a password, slurmctld, accounts, QOS and 40 partitions. Its nodes are not switched on."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cluster.providers.bare_machines import Bare

PACKAGES = "slurmctld,slurmdbd,slurm-client,munge,mariadb-server"
PASSWORD = "Sesame-of-the-database-7"
PARTITIONS = 40
NAME = "oldsite"
TEAMS = {"physics": ("alice", "bob"), "chemistry": ("carol",), "genomics": ("dave", "alice"), "it": ("erin",)}
ACCOUNTS = ("science", *TEAMS)
_QOS = (
    (
        "high",
        "Priority=100 UsageFactor=2 MaxWall=1-0 MaxTRESPerJob=cpu=128,gres/gpu=4 MaxJobsPerUser=8 Flags=DenyOnLimit",
    ),
    ("standby", "UsageFactor=0.25 GrpTRES=gres/gpu=16,node=4 GrpJobs=40 GraceTime=60 MinTRES=cpu=2"),
    ("unused", "Priority=5"),
    ("gpulimit", "MaxTRESPerUser=cpu=64,gres/gpu=2 MaxJobsPerUser=4"),
    ("physics", "GrpTRES=gres/gpu=12 GrpJobs=50 MaxSubmitJobsPerUser=200"),
)


def conf(address: str) -> str:
    """Returns slurm.conf; partitions are in a file that it includes."""
    return f"""# written by hand in 2019
ClusterName={NAME}
SlurmctldHost=rack10({address})
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmctldPidFile=/run/slurmctld.pid
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ProctrackType=proctrack/cgroup
GresTypes=gpu
DefMemPerCPU=3000
Licenses=matlab:10
PriorityType=priority/multifactor
PriorityWeightAge=5000
PriorityWeightFairshare=40000
PriorityWeightPartition=1000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=60
ReturnToService=1
Include partitions.conf
NodeName=DEFAULT State=DOWN
NodeName=cn[01-40] NodeAddr=192.0.2.[1-40] CPUs=64 Sockets=2 CoresPerSocket=32 RealMemory=256000 Feature=rome,ib Weight=10
NodeName=big[1-4] NodeAddr=192.0.2.[51-54] CPUs=128 Sockets=2 CoresPerSocket=64 RealMemory=2048000 Feature=rome,bigmem Weight=50
NodeName=gpu[1-8] NodeAddr=192.0.2.[61-68] CPUs=64 Sockets=2 CoresPerSocket=32 RealMemory=512000 \\
  Gres=gpu:a100:4 Feature=ib Weight=100
"""


def partitions() -> str:
    """Returns the PartitionName lines."""
    lines = ["PartitionName=DEFAULT State=UP DefaultTime=01:00:00"]
    for number in range(1, PARTITIONS - 4):
        more = "Default=YES" if number == 1 else "LLN=YES" if number % 2 else "Hidden=NO"
        limits = f"MaxTime={number % 7 + 1}-0 MaxNodes={number % 20 + 1}"
        lines += [
            f"PartitionName=Work{number:02d} Nodes=cn[01-40] PriorityTier=1 PriorityJobFactor={number} {limits} {more}"
        ]
    lines += [
        "PartitionName=bigmem Nodes=big[1-4] MaxTime=2-0 DefMemPerCPU=15000 AllowAccounts=physics,chemistry PriorityTier=1",
        "PartitionName=gpu Nodes=gpu[1-8] MaxTime=2-0 QOS=gpulimit PriorityTier=1 "
        "TRESBillingWeights=CPU=1.0,Mem=0.25G,GRES/gpu=16.0",
        "PartitionName=every Nodes=ALL MaxTime=0-12 PriorityTier=1 OverSubscribe=EXCLUSIVE",
        "PartitionName=urgent Nodes=ALL MaxTime=0-02:00:00 PriorityTier=20 PreemptMode=OFF DenyAccounts=genomics",
        "PartitionName=root Nodes=big1 RootOnly=YES MaxTime=UNLIMITED PriorityTier=1",
    ]
    return "\n".join(lines) + "\n"


FILES = {
    "gres.conf": "NodeName=gpu[1-8] Name=gpu Type=a100 File=/dev/nvidia[0-3]\n",
    "topology.conf": "SwitchName=s1 Nodes=cn[01-20]\nSwitchName=s2 Nodes=cn[21-40]\nSwitchName=s3 Nodes=big[1-4],gpu[1-8]\n"
    "SwitchName=top Switches=s[1-3]\n",
    "cgroup.conf": "ConstrainCores=yes\nConstrainRAMSpace=yes\nAllowedSwapSpace=10\n",
    "job_submit.lua": "function slurm_job_submit(desc, parts, uid)\n  return slurm.SUCCESS\nend\n",
}


def accounting() -> Iterator[str]:
    """Yields the commands that an administrator has typed over the years."""
    add = "sacctmgr -i add"
    for name, settings in _QOS:
        yield f"{add} qos {name} set {settings}"
    yield f"{add} account science Description=science Organization=uni Fairshare=60"
    yield f"{add} account it Description=it Organization=uni Fairshare=40"
    for account, share in (("physics", 3), ("chemistry", 1), ("genomics", 1)):
        yield f"{add} account {account} parent=science Description={account} Organization=uni Fairshare={share}"
    yield "sacctmgr -i modify account physics set DefaultQOS=physics QOS=physics"
    yield "sacctmgr -i modify account science set GrpTRES=gres/gpu=24 MaxSubmitJobs=500 QOS=normal,standby"
    yield "sacctmgr -i modify account chemistry set GrpJobs=30 MaxJobs=10"
    yield "sacctmgr -i modify account it set QOS=normal,high DefaultQOS=high"
    for account, users in TEAMS.items():
        for user in users:
            yield f"{add} user {user} account={account} Fairshare=1"
    yield f"{add} coordinator account=physics names=alice"
    yield "sacctmgr -i modify user bob set QOS+=high,standby"
    yield "sacctmgr -i modify user alice where account=genomics set MaxJobs=3 GrpTRES=gres/gpu=2 GrpTRESMins=gres/gpu=600"


def stand_up(bare: Bare, number: int = 10) -> None:
    """Sets the site up on the machine with this number, and waits until slurmctld and slurmdbd answer."""
    address = bare.address(number)
    files = {"/etc/slurm/slurm.conf": conf(address), "/etc/slurm/partitions.conf": partitions()}
    files |= {f"/etc/slurm/{name}": text for name, text in FILES.items()}
    files["/etc/slurm/slurmdbd.conf"] = (
        "AuthType=auth/munge\nDbdHost=localhost\nSlurmUser=slurm\nStorageType=accounting_storage/mysql\nStorageUser=slurm\n"
        f"StoragePass={PASSWORD}\nStorageLoc=slurm_acct_db\nLogFile=/var/log/slurm/slurmdbd.log\nPidFile=/run/slurmdbd/slurmdbd.pid\n"
    )
    write = "".join(f"cat >{path} <<'FILE_ENDS'\n{text}FILE_ENDS\n" for path, text in files.items())
    people = sorted({user for users in TEAMS.values() for user in users})
    script = f"""set -e
{write}
chown slurm: /etc/slurm/slurmdbd.conf; chmod 600 /etc/slurm/slurmdbd.conf
mkdir -p /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm; chown -R slurm: /var/lib/slurm /var/log/slurm
n=2000; for user in {" ".join(people)}; do n=$((n+1)); useradd -u $n -m $user; done
systemctl restart munge mariadb
mariadb -e "CREATE DATABASE IF NOT EXISTS slurm_acct_db; CREATE USER slurm@localhost IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON slurm_acct_db.* TO slurm@localhost"
for unit in slurmdbd slurmctld; do mkdir -p /etc/systemd/system/$unit.service.d
printf '[Service]\\nRestart=on-failure\\nRestartSec=1\\n' >/etc/systemd/system/$unit.service.d/again.conf; done
systemctl daemon-reload
systemctl restart slurmdbd
"""
    bare.inside(number, "sh", "-c", script, timeout_s=300)
    bare.wait(lambda: bool(bare.inside(number, "sacctmgr", "-nP", "show", "qos", check=False).strip()))
    # slurmctld tells slurmdbd of its GPUs, and starts only when the QOS of its partitions exist, whose limits need the GPUs.
    bare.inside(number, "sh", "-c", f"sacctmgr -i add cluster {NAME}; systemctl restart slurmctld; true", timeout_s=120)
    bare.wait(
        lambda: "gres|gpu" in bare.inside(number, "sacctmgr", "-nP", "show", "tres", "format=type,name", check=False)
    )
    commands = " && ".join(accounting())
    bare.inside(number, "sh", "-c", f"{{ {commands}; }} 2>&1", timeout_s=300)
    bare.inside(number, "sh", "-c", "systemctl reset-failed slurmctld; systemctl restart slurmctld", timeout_s=120)
    bare.wait(lambda: "UP" in bare.inside(number, "scontrol", "ping", check=False))
