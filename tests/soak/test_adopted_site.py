"""A hand-made Slurm site with a history, use, a running job and a queue is adopted: accounting, fair share and pending jobs
live on in the cluster that takes its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.lab import Lab
from tests.cluster.providers.bare_machines import Bare, run
from tests.cluster.slurm import old_site

pytestmark = pytest.mark.soak
NAME = "history"
PASSPHRASE = "a passphrase of the test"
CONF = """\
ClusterName=history
SlurmctldHost=rack10(@ADDRESS@)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStorageEnforce=associations,limits,qos
JobAcctGatherType=jobacct_gather/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PriorityType=priority/multifactor
PriorityCalcPeriod=1
PriorityWeightFairshare=40000
NodeName=rack10 NodeAddr=@ADDRESS@ CPUs=1 RealMemory=1000 State=UNKNOWN
PartitionName=work Nodes=ALL Default=YES MaxTime=1-0
"""
ACCOUNTS = (
    "add account science Description=s Organization=uni Fairshare=60",
    "add account physics parent=science Description=p Organization=uni Fairshare=3",
    "add account it Description=i Organization=uni Fairshare=40",
    "add user alice account=physics",
    "add user erin account=it",
)


class Site:
    """The site: controller, database and node are one machine."""

    def __init__(self, bare: Bare) -> None:
        self.bare = bare

    def run(self, script: str) -> str:
        return self.bare.inside(10, "sh", "-c", script, timeout_s=300)

    def stand_up(self) -> None:
        conf = CONF.replace("@ADDRESS@", self.bare.address(10))
        self.run(f"""set -e
cat >/etc/slurm/slurm.conf <<'FILE_ENDS'
{conf}FILE_ENDS
printf 'CgroupPlugin=disabled\\n' >/etc/slurm/cgroup.conf
cat >/etc/slurm/slurmdbd.conf <<'FILE_ENDS'
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageUser=slurm
StoragePass={old_site.PASSWORD}
StorageLoc=slurm_acct_db
PidFile=/run/slurmdbd/slurmdbd.pid
FILE_ENDS
chown slurm: /etc/slurm/slurmdbd.conf; chmod 600 /etc/slurm/slurmdbd.conf
mkdir -p /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm; chown -R slurm: /var/lib/slurm /var/log/slurm
useradd -u 2001 -m alice; useradd -u 2002 -m erin
systemctl restart munge mariadb
mariadb -e "CREATE DATABASE slurm_acct_db; CREATE USER slurm@localhost IDENTIFIED BY '{old_site.PASSWORD}';
GRANT ALL ON slurm_acct_db.* TO slurm@localhost"
for unit in slurmdbd slurmctld slurmd; do mkdir -p /etc/systemd/system/$unit.service.d
printf '[Service]\\nRestart=on-failure\\nRestartSec=1\\n' >/etc/systemd/system/$unit.service.d/again.conf; done
systemctl daemon-reload
systemctl restart slurmdbd""")
        self.bare.wait(lambda: bool(self.bare.inside(10, "sacctmgr", "-nP", "show", "qos", check=False).strip()))
        self.run(f"sacctmgr -i add cluster {NAME}; systemctl restart slurmctld")
        self.bare.wait(lambda: "UP" in self.bare.inside(10, "scontrol", "ping", check=False))
        self.run("; ".join(f"sacctmgr -i {row}" for row in ACCOUNTS))
        self.run("systemctl restart slurmd")
        self.bare.wait(lambda: "idle" in self.bare.inside(10, "sinfo", "-h", "-o", "%t", check=False))

    def sbatch(self, user: str, *options: str, wrap: str) -> int:
        words = " ".join(options)
        return int(self.run(f"cd /home/{user}; runuser -u {user} -- sbatch --parsable {words} --wrap='{wrap}'"))

    def state(self, job: int) -> str:
        return self.run(f"sacct -X -n -P -o State -j {job}").strip()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Bare(tmp_path / "bare", "debian13", shared=False, packages=f"{old_site.PACKAGES},slurmd")
    try:
        made.up(10)
        one = Site(made)
        one.stand_up()
        yield one
    finally:
        made.down()


def test_history_fair_share_and_queue_of_a_site_live_on(site: Site, tmp_path: Path) -> None:
    lab = Lab(tmp_path / "state", name=NAME)
    done = site.sbatch("alice", "--time=5", wrap="sleep 20")
    site.bare.wait(lambda: site.state(done) == "COMPLETED")
    site.bare.wait(lambda: physics_use(site.run("sshare -a -n -P -o Account,User,RawUsage")) > 0)
    running = site.sbatch("erin", "--time=600", wrap="sleep 30000")
    site.bare.wait(lambda: site.state(running) == "RUNNING")
    waiting = site.sbatch("alice", "--time=5", "--output=waited.txt", wrap="echo waited")
    after = site.sbatch("alice", "--time=5", f"--dependency=afterok:{waiting}", "--output=after.txt", wrap="echo after")

    folder, history = tmp_path / "imported", tmp_path / "history"
    conf = tmp_path / "conf"
    site.run(
        "set -e; mkdir /root/conf /root/history; cp /etc/slurm/slurm.conf /root/conf; cd /root/conf\n"
        f"sacctmgr -i dump {NAME} File=accounts.dump >/dev/null; sacctmgr -P show qos >qos.txt; getent passwd >passwd\n"
        "systemctl stop slurmctld slurmdbd slurmd\n"
        "tar -C /var/lib/slurm/slurmctld -czf /root/history/state.tar.gz .\n"
        "mariadb-dump --single-transaction slurm_acct_db | gzip >/root/history/slurm_acct_db.sql.gz"
    )
    for path in (conf, history):
        run("podman", "cp", f"{site.bare.container(10)}:/root/{path.name}", str(path))
    lab.cli("import", "--from", str(conf), "--to", str(folder), "--rehearse")
    lab.cli("server", "start")
    packed = lab.cli(
        "adopt", str(folder / "rehearsal.yaml"), "--from", str(history), "--to", str(tmp_path / "kept"), "-o", "json",
        HEADWAY_BACKUP_PASSPHRASE=PASSPHRASE,
    ).json()  # fmt: skip
    assert (packed["slurm"], packed["scripts"] >= 3) == ("24.11", True)
    try:
        lab.cli("restore", NAME, "--from", packed["path"], "--yes", HEADWAY_BACKUP_PASSPHRASE=PASSPHRASE, timeout_s=900)
        rows = dict(
            line.split("|") for line in lab.head("sacct", "-a", "-X", "-n", "-P", "-o", "JobID,State").out.split()
        )
        assert rows[str(done)] == "COMPLETED"
        assert physics_use(lab.head("sshare", "-a", "-n", "-P", "-o", "Account,User,RawUsage").out) > 0
        assert lab.wait_job(waiting) == "COMPLETED"
        assert lab.wait_job(after) == "COMPLETED"
        assert lab.output("/home/alice/waited.txt") == "waited\n"
        # Its node has another name here: Slurm starts it again.
        lab.wait(
            lambda: lab.field(running, "JobState") in ("RUNNING", "PENDING", "NODE_FAIL"), "the job of the old node"
        )
        assert lab.sbatch("alice", wrap="true") > after
        assert "nothing to change" in lab.cli("plan", str(folder / "rehearsal.yaml")).out
    finally:
        lab.down()


def physics_use(shares: str) -> int:
    rows = [line.split("|") for line in shares.splitlines()]
    return sum(int(row[2]) for row in rows if row[0].strip() == "physics" and not row[1])
