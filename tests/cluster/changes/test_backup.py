"""A lost head is restored from its backup without losing a job, and keys change under running jobs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.lab import Lab

SPEC = """\
name: keep
plan: h100-8
nodes: 2
teams:
  vision: {users: [ann, ben], share: 60}
  speech: {users: [cat], share: 20}
"""
PHRASE = {"HEADWAY_BACKUP_PASSPHRASE": "correct horse battery"}
NODES = ("keep-1-1", "keep-1-2")
WAITS = "while [ ! -e /scratch/{0} ]; do sleep 0.1; done"


@pytest.fixture(scope="module")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("keep") / "state", name="keep")
    with made.applied(SPEC):
        yield made


@pytest.fixture
def folder(lab: Lab) -> Path:
    return lab.state.parent / "backups"


def backup(lab: Lab, folder: Path) -> Path:
    return Path(lab.cli("backup", "keep", "--to", str(folder), **PHRASE).out.strip().splitlines()[-1])


def go(lab: Lab, name: str) -> None:
    lab.head("touch", f"/scratch/{name}")


def on_node(lab: Lab, node: str, *argv: str) -> str:
    return lab.podman("exec", lab.container(node), *argv)


def start_of(lab: Lab, machine: str, unit: str) -> str:
    """Returns an id that each start of the unit changes. A reload, after which slurmd has another pid, keeps it: nodes reload
    slurmd some time after a head was restored."""
    return on_node(lab, machine, "systemctl", "show", "-p", "InvocationID", "--value", unit).strip()


def test_backup_on_a_full_disk_leaves_no_files(lab: Lab, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], check=True)
    try:
        done = lab.cli("backup", "keep", "--to", str(small), check=False, **PHRASE)
        assert done.code == 1
        assert "is full" in done.err
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)
    lab.wait(lambda: lab.client.clusters.get("keep").state == "ready", "the cluster to be ready")


@pytest.mark.core
def test_restore_rebuilds_a_destroyed_head_without_losing_jobs(lab: Lab, folder: Path) -> None:
    ended = lab.sbatch("cat", wrap="sleep 1")
    lab.wait_job(ended)
    running = lab.sbatch("ann", "--nodes=2", "--gpus-per-node=8", wrap=WAITS.format("go-on"))
    lab.wait_job(running, "RUNNING")
    waiting = lab.sbatch("ben", "--nodes=2", "--gpus-per-node=8", wrap="echo late >/scratch/late")
    held = lab.sbatch("cat", "--hold", wrap="true")
    people = lab.head("id", "ann").out + lab.head("id", "cat").out
    shares = lab.head("sacctmgr", "-nP", "show", "assoc", "format=account,user,share").out
    records = ("sacct", "-a", "-X", "-n", "-o", "JobID", "-S", "now-1days")
    told = {str(job) for job in (ended, running, waiting)}  # sacct reports nothing about held jobs
    lab.wait(lambda: told <= set(lab.head(*records).out.split()), "accounting to have heard of the jobs")
    kept = backup(lab, folder)
    count = len(lab.head(*records).out.split("\n"))
    lost = lab.sbatch("ben", wrap="true")  # submitted after the backup, so it cannot be known
    lab.podman("rm", "--force", "--time", "0", lab.container("keep-head"))
    disks = list((lab.state / "volumes").glob("*/head"))
    assert len(disks) == 1
    shutil.rmtree(disks[0])

    lab.cli("restore", "keep", "--from", str(kept), "--yes", timeout_s=300, **PHRASE)

    assert lab.head("id", "ann").out + lab.head("id", "cat").out == people
    assert lab.head("sacctmgr", "-nP", "show", "assoc", "format=account,user,share").out == shares
    assert lab.state_of(ended) == "COMPLETED"
    assert len(lab.head(*records).out.split("\n")) == count
    assert lab.field(held, "JobState") == "PENDING"
    assert lab.state_of(running) == "RUNNING"
    assert lab.field(running, "Restarts") == "0"  # it kept running while there was no head
    assert lab.sbatch("ben", wrap="true") == lost
    go(lab, "go-on")
    assert lab.wait_job(running) == "COMPLETED"
    assert lab.wait_job(waiting) == "COMPLETED"
    assert lab.output("/scratch/late") == "late\n"
    lab.head("scancel", str(held))


@pytest.mark.core  # reads the backup that the test before it made
def test_restore_refuses_wrong_or_damaged_backups_without_changes(lab: Lab, folder: Path) -> None:
    before = start_of(lab, "keep-head", "slurmctld")
    kept = next(folder.glob("*.headway-backup"))
    wrong = lab.cli(
        "restore", "keep", "--from", str(kept), "--yes", check=False, HEADWAY_BACKUP_PASSPHRASE="another one"
    )
    assert "passphrase does not open" in wrong.err
    foreign = lab.cli("restore", "other", "--from", str(kept), "--yes", check=False, **PHRASE)
    assert "backup of the cluster keep" in foreign.err
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 1
    damaged = folder / "damaged.headway-backup"
    damaged.write_bytes(data)
    done = lab.cli("restore", "keep", "--from", str(damaged), "--yes", check=False, **PHRASE)
    assert "is damaged" in done.err
    assert start_of(lab, "keep-head", "slurmctld") == before
    lab.wait(lambda: lab.client.clusters.get("keep").state == "ready", "the cluster to be ready")
    listed = lab.cli("backups", "--in", str(folder), "--verify", kept.name, **PHRASE).out
    assert "yes" in listed
    assert lab.cli("backups", "--in", str(folder), "--verify", damaged.name, check=False, **PHRASE).code != 0
    damaged.unlink()


def test_keys_are_rotated_under_a_running_job(lab: Lab) -> None:
    steps = f"srun touch /scratch/began; {WAITS.format('turned')}; srun touch /scratch/again; {WAITS.format('signed')}"
    job = lab.sbatch("ann", "--nodes=2", wrap=steps)
    lab.wait(lambda: lab.head("test", "-e", "/scratch/began", check=False).code == 0, "the job's first step")
    daemons = [start_of(lab, "keep-head", "slurmctld"), *(start_of(lab, node, "slurmd") for node in NODES)]
    munge = ["sha256sum", "/etc/munge/munge.key"]
    old = lab.head(*munge).out
    read_only = "mount --bind /etc/munge /etc/munge && mount -o remount,bind,ro /etc/munge"
    on_node(lab, NODES[1], "sh", "-c", read_only)
    refused = lab.cli("keys", "rotate", "munge", "keep", check=False)
    on_node(lab, NODES[1], "umount", "/etc/munge")
    assert f"can't install the new MUNGE key, so all machines keep the old one:\n  {NODES[1]}: " in refused.err
    assert {lab.head(*munge).out, *(on_node(lab, node, *munge) for node in NODES)} == {old}
    on_node(lab, NODES[0], "test", "!", "-e", "/etc/munge/munge.key.next")
    lab.cli("keys", "rotate", "munge", "keep")
    new = lab.head(*munge).out
    assert new != old
    assert {on_node(lab, node, *munge) for node in NODES} == {new}
    assert [start_of(lab, "keep-head", "slurmctld"), *(start_of(lab, node, "slurmd") for node in NODES)] == daemons
    lab.cli("keys", "rotate", "ssh", "keep")
    go(lab, "turned")
    lab.wait(lambda: lab.head("test", "-e", "/scratch/again", check=False).code == 0, "a step with the new key")
    lab.cli("keys", "rotate", "jwt", "keep")  # restarts the controller, after which a new step waits for a minute
    assert lab.state_of(job) == "RUNNING"
    assert "no password" in lab.cli("keys", "rotate", "database", "keep", check=False).err
    go(lab, "signed")
    assert lab.wait_job(job) == "COMPLETED"
    lab.wait(
        lambda: lab.client.jobs.get("keep", job).state == "COMPLETED",
        "the server, with its new token, to know that too",
    )


def drained(lab: Lab, node: str) -> str:
    """Returns the reason for which a node is drained; "" if it is not."""
    state, _, why = lab.head("sinfo", "-h", "-n", node, "-o", "%T|%E").out.strip().split("\n")[0].partition("|")
    return why if state.startswith("drain") else ""


def test_volume_is_added_lost_remounted_and_removed_under_a_job(lab: Lab) -> None:
    job = lab.sbatch("ann", "--nodes=2", wrap=WAITS.format("volume"))
    lab.wait_job(job, "RUNNING")
    lab.head("install", "-d", "-m", "1777", "/srv/headway/scratch/models")
    daemons = [start_of(lab, "keep-head", "slurmctld"), *(start_of(lab, node, "slurmd") for node in NODES)]
    plain = lab.state / "keep.yaml"
    more = lab.state / "volume.yaml"
    mount = "{name: models, path: /models, mount: none /srv/headway/scratch/models bind}"
    more.write_text(f"{SPEC}storage: {{volumes: [{mount}]}}\n")
    lab.cli("apply", str(more), "--yes")
    lab.head("touch", "/models/there", user="ann")
    for node in NODES:
        on_node(lab, node, "test", "-e", "/models/there")

    # while this file exists the volume's server is away: it cannot be mounted again
    away = "/run/systemd/system/models.mount.d"
    script = f"mkdir -p {away}; printf '[Mount]\\nType=away\\nOptions=\\n' >{away}/away.conf; systemctl daemon-reload"
    on_node(lab, NODES[0], "sh", "-c", f"{script}; umount --lazy /models")
    why = lab.wait(lambda: drained(lab, NODES[0]), "the node without the volume to drain")
    assert "/models is not mounted" in why
    assert lab.state_of(job) == "RUNNING"
    on_node(lab, NODES[0], "sh", "-c", f"rm -r {away}; systemctl daemon-reload")
    lab.wait(lambda: not drained(lab, NODES[0]), "the node to return with the volume")
    on_node(lab, NODES[0], "test", "-e", "/models/there")

    assert "is detached" in lab.cli("plan", str(plain)).out
    lab.cli("apply", str(plain), "--yes")
    for node in ("keep-head", *NODES):
        on_node(lab, node, "sh", "-c", "! mountpoint -q /models")
    assert [start_of(lab, "keep-head", "slurmctld"), *(start_of(lab, node, "slurmd") for node in NODES)] == daemons
    assert all(incident.state == "returned" for incident in lab.client.incidents.list("keep"))
    go(lab, "volume")
    assert lab.wait_job(job) == "COMPLETED"


def test_hanging_or_unmountable_volumes_do_not_block_apply(lab: Lab) -> None:
    job = lab.sbatch("ann", "--nodes=2", wrap=WAITS.format("hung"))
    lab.wait_job(job, "RUNNING")
    lab.head("sh", "-c", "mkdir /scratch/in; touch /scratch/in/there; mksquashfs /scratch/in /scratch/box.sqsh -quiet")
    plain, box, more = (lab.state / name for name in ("keep.yaml", "box.yaml", "more.yaml"))
    hangs = '{name: box, path: /box, mount: "fuse.squashfuse /scratch/box.sqsh ro,allow_other"}'
    gone = "{name: gone, path: /gone, mount: nfs4 localhost:/nowhere}"  # no kernel here can mount it
    box.write_text(f"{SPEC}storage: {{volumes: [{hangs}]}}\n")
    more.write_text(f"{SPEC}storage: {{volumes: [{hangs}, {gone}]}}\n")
    lab.cli("apply", str(box), "--yes")
    machines = ("keep-head", *NODES)
    for machine in machines:
        on_node(lab, machine, "test", "-e", "/box/there")
    try:
        for machine in machines:
            on_node(lab, machine, "pkill", "-STOP", "-x", "squashfuse")  # in that container alone
        output = lab.cli("apply", str(more), "--yes")
        assert (output.out + output.err).count("a step failed, the others go on") == len(machines)
        lab.cli("apply", str(plain), "--yes")
        for machine in machines:
            mounts = on_node(lab, machine, "cat", "/proc/self/mounts")
            assert "/box" not in mounts
            on_node(lab, machine, "test", "!", "-e", "/etc/systemd/system/box.mount")
        assert lab.state_of(job) == "RUNNING"
    finally:
        for machine in machines:
            on_node(lab, machine, "sh", "-c", "pkill -CONT -x squashfuse || true")
    go(lab, "hung")
    assert lab.wait_job(job) == "COMPLETED"


@pytest.mark.soak
def test_restore_keeps_fairshare_usage(lab: Lab, folder: Path) -> None:
    """Slurm adds up usage as jobs end, and writes it down every five minutes (PERIODIC_CHECKPOINT)."""

    def use() -> dict[str, int]:
        rows = lab.head("sshare", "-a", "-nP", "-o", "user,rawusage").out.split()
        return {user: int(raw) for user, _, raw in (row.partition("|") for row in rows) if user in {"ann", "ben"}}

    before = use()["ben"]
    job = lab.sbatch("ben", "--nodes=2", "--exclusive", wrap="sleep 5")
    assert lab.wait_job(job) == "COMPLETED"
    lab.wait(lambda: use()["ben"] > before, "Slurm to count what ben used", patience_s=180)
    counted, written = use(), ("stat", "-c", "%Y", "/srv/headway-state/slurmctld/assoc_usage")
    since = int(lab.head("date", "+%s").out)
    lab.wait(lambda: int(lab.head(*written, check=False).out or 0) > since, "Slurm to write it down", patience_s=480)
    kept = backup(lab, folder)
    lab.podman("rm", "--force", "--time", "0", lab.container("keep-head"))
    [disk] = (lab.state / "volumes").glob("*/head")
    shutil.rmtree(disk)
    lab.cli("restore", "keep", "--from", str(kept), "--yes", timeout_s=300, **PHRASE)
    assert use() == pytest.approx(counted, rel=0.01)  # usage decays by half within a week
