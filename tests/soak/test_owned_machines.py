"""Owned machines, which are bare Debian containers with systemd and sshd, are set up over SSH by a user with sudo,
used, broken and released. They install packages from their own sources, so this takes minutes per system."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.lab import Lab
from tests.cluster.providers.bare_machines import Bare

pytestmark = pytest.mark.soak
HEAD, ONE, TWO, STRANGER = 10, 11, 12, 20
MACHINES = (HEAD, ONE, TWO)
TINY = """\
set -eu
cd /scratch/ann
rm -rf root && mkdir -p root/usr/bin root/etc
for name in bash cat id; do
    program=$(readlink -f /usr/bin/$name)
    cp "$program" root/usr/bin/$name
    for library in $(ldd "$program" | grep -o '/[^ ]*'); do
        mkdir -p "root${library%/*}"; [ -e "root$library" ] || cp "$(readlink -f "$library")" "root$library"
    done
done
ln -s usr/bin root/bin; ln -s bash root/usr/bin/sh
echo 'PRETTY_NAME="Tiny 1"' >root/etc/os-release
mksquashfs root tiny.sqsh -quiet -no-progress -all-root -noappend
"""


class Own:
    """Three machines of a cluster, one outside it, and their server."""

    def __init__(self, folder: Path, system: str) -> None:
        self.bare = Bare(folder / "bare", system)
        self.lab = Lab(folder / "state", name="own")
        self.bare.up(*MACHINES, STRANGER)
        self.bare.sudo((*MACHINES, STRANGER), password=True)
        self.password = self.bare.folder / "password"
        self.password.write_text("sesame\n")
        self.host = f"user: ops, sudo_password: {self.password}"
        self.file = self.spec()

    def spec(self, name: str = "own", numbers: tuple[int, ...] = MACHINES, more: str = "") -> Path:
        teams = "teams: {vision: {users: [ann]}}\n"
        return self.bare.spec(name, numbers, f"{teams}{more}", host=self.host)

    def close(self) -> None:
        self.lab.cli("down", "own", "--yes", "--delete-data", check=False, timeout_s=300)
        self.lab.cli("server", "stop", check=False)
        self.bare.down()


@pytest.fixture(scope="module", params=["debian13", "debian12"])
def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.fail("this test makes real machines: run it as root after `make setup`")
    made = Own(tmp_path_factory.mktemp(request.param), request.param)
    try:
        yield made
    finally:
        made.close()


def plan(own: Own, file: Path) -> str:
    done = own.lab.cli("plan", str(file), check=False)
    return done.out + done.err


def untouched(own: Own, number: int) -> bool:
    """Returns whether a machine has neither a mark nor Python, so that nothing was done to it."""
    left = "ls /etc/headway/held-by /usr/bin/python3 2>/dev/null || true"
    return own.bare.inside(number, "sh", "-c", left) == ""


# --- before anything is claimed: each obstacle stops an apply with one clear message


def test_plan_reports_found_machines_and_changes_nothing(own: Own) -> None:
    own.lab.cli("server", "start")
    planned = plan(own, own.file)
    assert "Slurm is configured with the values found" in planned
    assert f"own-1-[1-{len(MACHINES) - 1}]" in planned
    assert untouched(own, ONE)


def test_apply_refuses_wrong_sudo_password(own: Own) -> None:
    own.password.write_text("wrong\n")
    try:
        done = own.lab.cli("apply", str(own.spec("wrong")), "--yes", check=False)
        assert done.code != 0
        assert "the sudo password of ops is wrong" in done.err
        assert str(own.password) in done.err
        assert "no machine was changed" in done.err
        assert untouched(own, HEAD)
    finally:
        own.password.write_text("sesame\n")


def test_apply_refuses_machine_held_by_another_cluster(own: Own) -> None:
    mark = '{"cluster": "prod", "server": "elsewhere", "machine": "prod-1-1"}'
    own.bare.inside(TWO, "sh", "-c", f"mkdir -p /etc/headway; echo '{mark}' >/etc/headway/held-by")
    try:
        done = own.lab.cli("apply", str(own.file), "--yes", check=False)
        assert f"own-1-2 ({own.bare.address(TWO)}) is held by cluster prod, as prod-1-1" in done.err
        assert untouched(own, HEAD)
    finally:
        own.bare.inside(TWO, "rm", "-r", "/etc/headway")


def test_apply_refuses_unreachable_machine(own: Own) -> None:
    file = own.spec("silent", (HEAD, ONE, 99))
    done = own.lab.cli("apply", str(file), "--yes", check=False)
    assert f"{own.bare.address(99)} shows no Ed25519 host key on port 22" in done.err


def test_plan_refuses_machine_with_too_little_memory(own: Own) -> None:
    small = (
        "sed 's/^MemTotal:.*/MemTotal: 400000 kB/' /proc/meminfo >/run/meminfo; mount --bind /run/meminfo /proc/meminfo"
    )
    own.bare.inside(ONE, "sh", "-c", small)
    try:
        assert f"own-1-1 ({own.bare.address(ONE)}) has 390 MiB of memory, at least 700 MiB are needed" in plan(
            own, own.file
        )
    finally:
        own.bare.inside(ONE, "umount", "/proc/meminfo")


def test_plan_refuses_unshared_scratch_without_kernel_nfs(own: Own) -> None:
    own.bare.inside(TWO, "mount", "-t", "tmpfs", "none", "/scratch")
    try:
        assert "has to export /scratch, which the machines do not share, and its kernel has no NFS server" in plan(
            own, own.file
        )
    finally:
        own.bare.inside(TWO, "umount", "/scratch")


def test_plan_finds_the_machines_of_a_state_file(own: Own) -> None:
    hosts = [
        {"address": own.bare.address(n), "key": str(own.bare.key), "user": "ops", "sudo_password": str(own.password)}
        for n in MACHINES
    ]
    state = {"version": 4, "outputs": {"hosts": {"value": hosts, "type": "dynamic"}}}
    (own.bare.folder / "terraform.tfstate").write_text(json.dumps(state))
    file = own.bare.folder / "made.yaml"
    for source in ("file: terraform.tfstate", 'from: "cat terraform.tfstate"'):
        head, _, _ = own.file.read_text().partition("hosts:\n")
        file.write_text(f"{head}hosts: {{{source}}}\nteams: {{vision: {{users: [ann]}}}}\n")
        assert plan(own, file) == plan(own, own.file)


# --- set up, in two parts


def test_next_apply_finishes_killed_apply(own: Own) -> None:
    began = subprocess.Popen(
        [sys.executable, "-m", "headway", "apply", str(own.file), "--yes"],
        env=own.lab.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        ends = time.monotonic() + 900
        while "dpkg" not in own.bare.inside(ONE, "ps", "-A", "-o", "comm", check=False):
            assert time.monotonic() < ends, "packages were never installed"
            time.sleep(0.5)
        server = int((own.lab.state / "server.pid").read_text().split()[0])
        os.kill(server, signal.SIGKILL)
        own.bare.inside(ONE, "sh", "-c", "kill -9 $(pidof apt-get dpkg)", check=False)
    finally:
        began.kill()
        began.wait()
    own.lab.forget_client()
    done = own.lab.cli("apply", str(own.file), "--yes", timeout_s=3600)
    assert "own is ready" in done.out
    assert "nothing to change" in own.lab.cli("apply", str(own.file), "--yes").out


def test_jobs_run_and_appear_in_sacct(own: Own) -> None:
    lab = own.lab
    names = lab.head("srun", "-N2", "hostname", user="ann").out.split()
    assert sorted(names) == ["own-1-1", "own-1-2"]
    job = lab.sbatch("ann", "-o", "/scratch/ann/job.out", wrap="id -un; df /tmp | tail -1; echo $SLURM_JOB_NODELIST")
    assert lab.wait_job(job) == "COMPLETED"
    assert lab.output("/scratch/ann/job.out").startswith("ann\n")
    lab.wait(
        lambda: "COMPLETED" in lab.head("sacct", "-X", "-n", "-P", "-o", "State", "-j", str(job)).out, "accounting"
    )
    output = lab.head("scontrol", "show", "node", "own-1-1").out
    assert f"CPUTot={os.cpu_count()}" in output
    assert "Gres=(null)" in output


def test_jobs_have_private_tmp_and_memory_limit(own: Own) -> None:
    lab = own.lab
    assert lab.head("srun", "sh", "-c", "touch /tmp/mine; ls /tmp", user="ann").out.split() == ["mine"]
    eats = "python3 -c 'x = bytearray(900 << 20)'"
    done = lab.head("srun", "--mem=200", "sh", "-c", eats, user="ann", check=False)
    assert done.code != 0


def test_squashfs_container_job_runs(own: Own) -> None:
    own.lab.head("bash", "-s", user="ann", stdin=TINY)
    argv = ["srun", "--container-image=/scratch/ann/tiny.sqsh", "cat", "/etc/os-release"]
    assert 'PRETTY_NAME="Tiny 1"' in own.lab.head(*argv, user="ann").out


def test_dataset_version_is_readonly_on_all_nodes(own: Own, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    tmp_path.chmod(0o755)
    lab, here = own.lab, ("--cluster", "own")  # the server knows other clusters, whose applies were refused
    assert (
        lab.cli("dataset", "add", "words", "--from", str(tmp_path), *here).out.splitlines()[-1] == "/datasets/words/1"
    )
    reads = "cat /datasets/words/1/a.txt; echo; touch /datasets/words/1/b 2>/dev/null || echo refused"
    said = lab.head("srun", "-N2", "sh", "-c", reads, user="ann").out.split()
    assert sorted(said) == ["alpha", "alpha", "refused", "refused"], "two nodes, in whichever order they speak"
    assert lab.cli("dataset", "verify", "words", *here).out.splitlines()[-1] == "words@1 is complete"
    lab.cli("dataset", "rm", "words@1", "--yes", *here)
    assert "/datasets/words " not in lab.head("cat", "/proc/self/mounts").out


def test_head_services_run_and_drained_node_gets_no_jobs(own: Own) -> None:
    lab = own.lab
    units = lab.head("systemctl", "is-active", "headway-agent", "prometheus", "slurmrestd").out.split()
    assert units == ["active"] * 3
    lab.head("scontrol", "update", "nodename=own-1-2", "state=drain", "reason=test")
    lab.wait(lambda: "DRAIN" in lab.head("scontrol", "show", "node", "own-1-2").out, "the drain")
    assert lab.head("srun", "-N1", "hostname", user="ann").out.strip() == "own-1-1"
    lab.head("scontrol", "update", "nodename=own-1-2", "state=resume")


def test_firewall_blocks_slurm_ports_for_other_machines(own: Own) -> None:
    """They answer a machine of the cluster and no other machine; SSH answers both."""

    def reaches(number: int, port: int) -> bool:
        ask = f"timeout 3 bash -c '</dev/tcp/{own.bare.address(HEAD)}/{port}' 2>/dev/null && echo yes || true"
        return own.bare.inside(number, "bash", "-c", ask).strip() == "yes"

    for port in (6817, 6819):
        assert reaches(ONE, port), port
        assert not reaches(STRANGER, port), port
    assert reaches(STRANGER, 22)


def test_apply_keeps_existing_entries_in_etc_hosts(own: Own) -> None:
    hosts = own.bare.inside(ONE, "cat", "/etc/hosts")
    assert "192.0.2.9 files.example.org" in hosts
    assert "own-head" in hosts
    assert own.bare.inside(ONE, "hostname").strip() == "own-1-1"


def test_second_cluster_cannot_claim_held_machine(own: Own) -> None:
    done = own.lab.cli("apply", str(own.spec("thief", (STRANGER, ONE))), "--yes", check=False)
    assert f"thief-1-1 ({own.bare.address(ONE)}) is held by cluster own, as own-1-1" in done.err
    assert own.bare.inside(STRANGER, "sh", "-c", "ls /etc/headway 2>/dev/null || true") == ""


def test_reordering_inventory_moves_no_machine(own: Own) -> None:
    """The file is stored, because the order of a reserve counts; no machine changes."""
    said = own.lab.cli("apply", str(own.spec("own", (HEAD, TWO, ONE))), "--yes").out
    assert [line.split()[0] for line in said.splitlines() if " none " in line] == ["setting.keep"]
    assert "nothing to do: the head and 2 nodes already match the file" in said


def test_scaling_down_releases_machine_and_scaling_up_reuses_it(own: Own) -> None:
    own.lab.cli("scale", "own", "1", "--yes", timeout_s=600)
    assert own.lab.head("sinfo", "-h", "-N", "-o", "%N").out.split() == ["own-1-1"]
    assert "held" not in own.bare.inside(TWO, "sh", "-c", "ls /etc/headway", check=False)
    own.lab.cli("scale", "own", "2", "--yes", timeout_s=600)
    names = own.lab.head("srun", "-N2", "hostname", user="ann").out.split()
    assert sorted(names) == ["own-1-1", "own-1-2"]


def test_plan_refuses_changed_ssh_host_key(own: Own) -> None:
    remake = "cp -a /etc/ssh/ssh_host_ed25519_key* /root/; rm /etc/ssh/ssh_host_ed25519_key*; ssh-keygen -A"
    own.bare.inside(TWO, "sh", "-c", f"{remake} >/dev/null; systemctl restart ssh")
    own.lab.cli("server", "stop")  # it has an open connection with the old key
    own.lab.cli("server", "start")
    own.lab.forget_client()
    try:
        planned = plan(own, own.file)
        assert "answers with another SSH host key than the one pinned" in planned
    finally:
        own.bare.inside(TWO, "sh", "-c", "cp -a /root/ssh_host_ed25519_key* /etc/ssh/; systemctl restart ssh")
    assert "nothing to change" in own.lab.cli("apply", str(own.file), "--yes").out


def test_down_restores_machines_for_reuse(own: Own) -> None:
    own.lab.cli("down", "own", "--yes", timeout_s=300)
    for number in MACHINES:
        assert own.bare.inside(number, "hostname").strip() == f"rack{number}"
        hosts = own.bare.inside(number, "cat", "/etc/hosts")
        assert "own-head" not in hosts
        assert "192.0.2.9 files.example.org" in hosts
        left = "systemctl is-active slurmd slurmctld slurmdbd mariadb headway-agent headway-firewall; ls /etc/headway/held-by"
        said = own.bare.inside(number, "sh", "-c", left, check=False)
        assert "active" not in said.split()
        assert "/etc/headway/held-by\n" not in said
        assert "headway" not in own.bare.inside(number, "nft", "list", "tables")
        assert "hidepid=invisible" not in own.bare.inside(number, "cat", "/proc/self/mounts")
    assert "is set up" in own.lab.cli("apply", str(own.file), "--yes", timeout_s=1800).out  # and may be claimed again
