"""A hand-made Slurm site with nested accounts, 10,000 jobs of history, use, a running job and a queue is adopted: accounting,
fair share and pending jobs live on in the cluster that takes its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.catalog.node_images import DEFAULT_IMAGE, IMAGES
from tests.cluster.lab import Lab
from tests.cluster.providers.bare_machines import Bare, run
from tests.cluster.slurm import old_site

pytestmark = pytest.mark.soak
NAME = "history"
PASSPHRASE = "a passphrase of the test"
FIRST_JOB = 20_000  # jobs of the history have lower numbers
COPIES = 1250  # of each of 8 jobs
PASSED_S = 600  # between two copies of a job
CONF = """\
ClusterName=history
SlurmctldHost=rack10(@ADDRESS@)
SlurmUser=slurm
AuthType=auth/munge
FirstJobId=20000
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
    "add account astro parent=physics Description=a Organization=uni Fairshare=2",
    "add account particles parent=physics Description=b Organization=uni Fairshare=1",
    "add account chemistry parent=science Description=c Organization=uni Fairshare=1",
    "add account it Description=i Organization=uni Fairshare=40",
    "add user alice account=astro",
    "add user bob account=particles",
    "add user carol account=chemistry",
    "add user erin account=it",
)
USERS = ("alice", "bob", "carol", "erin")
# Every column of a job but the key, with another number and earlier times. Steps are not copied.
COPY_JOBS = f"""
SET SESSION group_concat_max_len = 100000;
SELECT GROUP_CONCAT(CONCAT('`', column_name, '`')),
  GROUP_CONCAT(CASE WHEN column_name = 'id_job' THEN 'id_job - {FIRST_JOB} + 1 + copy.n * 8'
    WHEN column_name IN ('time_submit', 'time_eligible', 'time_start', 'time_end')
      THEN CONCAT(column_name, ' - (copy.n + 1) * {PASSED_S}')
    ELSE CONCAT('`', column_name, '`') END)
  INTO @columns, @values FROM information_schema.columns
  WHERE table_schema = 'slurm_acct_db' AND table_name = '{NAME}_job_table' AND column_name <> 'job_db_inx';
CREATE TEMPORARY TABLE copy SELECT seq AS n FROM seq_0_to_{COPIES - 1};
SET @copy_jobs = CONCAT('INSERT INTO {NAME}_job_table (', @columns, ') SELECT ', @values,
  ' FROM {NAME}_job_table CROSS JOIN copy WHERE id_job < {FIRST_JOB} + 8');
PREPARE copy_jobs FROM @copy_jobs; EXECUTE copy_jobs;
UPDATE {NAME}_event_table SET time_start = UNIX_TIMESTAMP() - 12 * 86400 WHERE node_name = '';
DELETE FROM {NAME}_last_ran_table;
INSERT INTO {NAME}_last_ran_table SELECT since.at, since.at, since.at FROM (SELECT UNIX_TIMESTAMP() - 12 * 86400 AS at) AS since;
"""
HISTORY = (
    "sacct", "-a", "-X", "-n", "-P", "-S", "now-15days", "-E", "now", "-o",
    "JobIDRaw,User,Account,Partition,State,Submit,Start,End,AllocCPUS,ExitCode",
)  # fmt: skip
# The hours of the copies are over, so no later job changes their sums.
REPORT = "sreport -n -P -t seconds cluster AccountUtilizationByUser start={start} end={end} format=Accounts,Login,Used"


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
# Slurm 22.05 does not have this plugin
case $(sinfo --version) in *" 22.05"*) ;; *) echo CgroupPlugin=disabled >/etc/slurm/cgroup.conf ;; esac
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
n=2000; for user in {" ".join(USERS)}; do n=$((n+1)); useradd -u $n -m $user; done
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


@pytest.fixture(params=["debian13", "debian12"])  # Slurm 24.11 and 22.05
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    made = Bare(tmp_path / "bare", request.param, shared=False, packages=f"{old_site.PACKAGES},slurmd")
    try:
        made.up(10)
        one = Site(made)
        one.stand_up()
        yield one
    finally:
        made.down()


def make_history(site: Site) -> None:
    """Runs 8 jobs, and copies them in the database to 10,000 earlier ones."""
    jobs = [site.sbatch(user, "--time=5", wrap=f"sleep {n}") for n in (1, 2) for user in USERS]
    assert jobs[0] == FIRST_JOB
    site.bare.wait(lambda: [site.state(job) for job in jobs] == ["COMPLETED"] * 8)
    # slurmdbd writes what it has not written yet when it ends.
    site.run(f"""set -e
systemctl stop slurmctld slurmdbd
mariadb slurm_acct_db <<'SQL_ENDS'
{COPY_JOBS}
SQL_ENDS
systemctl start slurmdbd""")
    site.bare.wait(lambda: bool(site.bare.inside(10, "sacctmgr", "-nP", "show", "qos", check=False).strip()))
    site.run("systemctl start slurmctld")
    site.bare.wait(lambda: "UP" in site.bare.inside(10, "scontrol", "ping", check=False))
    site.bare.wait(lambda: "idle" in site.bare.inside(10, "sinfo", "-h", "-o", "%t", check=False))


def test_history_fair_share_and_queue_of_a_site_live_on(site: Site, tmp_path: Path) -> None:
    image = site.bare.system
    lab = Lab(tmp_path / "state", name=NAME, image=image)
    make_history(site)
    site.bare.wait(lambda: all(use > 0 for use in used(site.run("sshare -a -n -P -o Account,User,RawUsage")).values()))
    running = site.sbatch("erin", "--time=600", wrap="sleep 30000")
    site.bare.wait(lambda: site.state(running) == "RUNNING")
    waiting = site.sbatch("alice", "--time=5", "--hold", "--output=waited.txt", wrap="echo waited")
    after = site.sbatch("alice", "--time=5", f"--dependency=afterok:{waiting}", "--output=after.txt", wrap="echo after")
    ended = [row for row in site.run(" ".join(HISTORY)).splitlines() if "COMPLETED" in row]
    assert len(ended) == 8 * (COPIES + 1)
    start, end = site.run("date +%F -d -15days; date +%F -d yesterday").split()
    sums = REPORT.format(start=start, end=end)
    days = f"mariadb -N slurm_acct_db -e 'SELECT COUNT(*) FROM {NAME}_assoc_usage_day_table'"
    site.bare.wait(lambda: int(site.run(days)) > 0)
    report = site.run(sums)
    use = used(site.run("sshare -a -n -P -o Account,User,RawUsage"))

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
    file = folder / "rehearsal.yaml"
    lab.cli("server", "start")
    words = ("adopt", str(file), "--from", str(history), "--to", str(tmp_path / "kept"), "-o", "json")
    if image != DEFAULT_IMAGE:
        refused = lab.cli(*words, HEADWAY_BACKUP_PASSPHRASE=PASSPHRASE, check=False)
        assert (refused.code, f"image: {image}" in refused.err) == (1, True), refused.err
        file.write_text(file.read_text().replace(f"image: {DEFAULT_IMAGE}", f"image: {image}"))
    packed = lab.cli(*words, HEADWAY_BACKUP_PASSPHRASE=PASSPHRASE).json()
    assert (packed["slurm"], packed["scripts"] >= 3) == (IMAGES[image].slurm.name, True)
    try:
        lab.cli("restore", NAME, "--from", packed["path"], "--yes", HEADWAY_BACKUP_PASSPHRASE=PASSPHRASE, timeout_s=900)
        kept = used(lab.head("sshare", "-a", "-n", "-P", "-o", "Account,User,RawUsage").out)
        # Use fades while the site moves; the running job of erin adds to hers.
        assert {user: kept[user] for user in USERS[:3]} == pytest.approx(
            {user: use[user] for user in USERS[:3]}, rel=0.02, abs=2
        )
        assert kept["erin"] >= use["erin"] - 2
        assert set(ended) <= set(lab.head(*HISTORY).out.splitlines())
        # Its node has another name here: Slurm starts it again.
        lab.wait(
            lambda: lab.field(running, "JobState") in ("RUNNING", "PENDING", "NODE_FAIL"), "the job of the old node"
        )
        lab.head("scancel", str(running), check=False)
        lab.head("scontrol", "release", str(waiting), user="alice")
        assert lab.wait_job(waiting) == "COMPLETED"
        assert lab.wait_job(after) == "COMPLETED"
        assert lab.output("/home/alice/waited.txt") == "waited\n"
        assert lab.sbatch("alice", wrap="true") > after
        assert "nothing to change" in lab.cli("plan", str(file)).out
        assert all(f"|{user}|" in report for user in USERS)
        assert lab.head(*sums.split()).out == report
    finally:
        lab.down()


def used(shares: str) -> dict[str, int]:
    """Returns the use of each user that fair share counts."""
    rows = [line.strip().split("|") for line in shares.splitlines()]
    return {row[1]: int(row[2]) for row in rows if row[1] in USERS}
