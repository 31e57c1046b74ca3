"""Hosts that run another Debian than the node image: their machines are system containers. They are set up over SSH by a
user with sudo, used, rolled to a new image, broken, and released; a host is as before afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.providers.local.provider import UNIFIED
from tests.cluster.changes.installation import Installation
from tests.cluster.lab import Lab
from tests.cluster.providers.bare_machines import Bare

pytestmark = pytest.mark.soak
HEAD, NODE = 10, 11
GPUS = 4
# Stands for NVIDIA's program on the host; the GPUs have device files, but no hardware behind them.
SMI = """\
#!/bin/sh
case "$*" in
*--query-gpu=index,name*) for n in 0 1 2 3; do echo "$n, NVIDIA L4, 23034, 00000000:0$n:00.0, 570.124.06"; done ;;
*) exit 9 ;;
esac
"""
# What the head and the host itself must have, before and after a cluster
STATE = """\
hostname; cat /etc/hosts; systemctl list-unit-files --state=enabled --no-legend | sort; ls /etc/systemd/system /etc/ssh
ls -A /var/lib/headway /etc/headway 2>/dev/null; nft list tables 2>/dev/null; dpkg -l | grep ^ii | wc -l; getent passwd
"""


class Hosts:
    """Two hosts, and their server."""

    def __init__(self, folder: Path, system: str, image: str, packages: str) -> None:
        self.installation = Installation(folder / "headway", image)
        self.bare = Bare(folder / "bare", system, packages=packages, node_image=image)
        self.lab = Lab(folder / "state", name="con", image=image)
        self.lab.env["PYTHONPATH"] = str(self.installation.folder / "src")
        self.bare.up(HEAD, NODE)
        self.bare.sudo((HEAD, NODE), password=True)
        password = self.bare.folder / "password"
        password.write_text("sesame\n")
        self.host = f"user: ops, sudo_password: {password}"
        self.file = self.spec()
        self.runtime = "podman" if "podman" in packages else "systemd-nspawn"
        self.before = {number: self.state(number) for number in (HEAD, NODE)}

    def spec(self, more: str = "", name: str = "con", **fields: str) -> Path:
        host = ", ".join([self.host, *(f"{key}: {value}" for key, value in fields.items())])
        return self.bare.spec(name, (HEAD, NODE), f"teams: {{vision: {{users: [ann]}}}}\n{more}", host=host)

    def state(self, number: int) -> str:
        return self.bare.inside(number, "sh", "-c", STATE, check=False)

    def plan(self, file: Path) -> str:
        done = self.lab.cli("plan", str(file), check=False)
        return done.out + done.err

    def close(self) -> None:
        self.lab.cli("down", "con", "--yes", "--delete-data", check=False, timeout_s=300)
        self.lab.cli("server", "stop", check=False)
        self.bare.down()
        self.installation.remove_images()


CASES = {
    "debian12-podman": ("debian12", "debian13", "podman,runc,nftables"),
    "debian12-nspawn": ("debian12", "debian13", "systemd-container,nftables"),
    "debian13-podman": ("debian13", "debian12", "podman,runc,nftables"),
    "sid-podman": ("sid", "debian13", "podman,nftables"),
    "sid-nspawn": ("sid", "debian13", "systemd-container,nftables"),
}


@pytest.fixture(scope="module", params=list(CASES.values()), ids=list(CASES))
def hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.fail("this test makes real machines: run it as root after `make setup`")
    if request.param[0] == "sid" and not UNIFIED.exists():
        pytest.skip("sid's systemd needs cgroup v2, whose controllers this host's kernel has given to v1")
    made = Hosts(tmp_path_factory.mktemp(request.param[0]), *request.param)
    try:
        yield made
    finally:
        made.close()


def test_plan_says_what_runs_where_and_refuses_unsuitable_hosts(hosts: Hosts) -> None:
    hosts.lab.cli("server", "start")
    said = hosts.plan(hosts.file)
    assert f"con-head,con-1-1: node image {hosts.bare.node_image} in a system container ({hosts.runtime})" in said
    assert "apply would stop" not in said
    program = f"/usr/bin/{hosts.runtime}"
    hosts.bare.inside(NODE, "mv", program, f"{program}.away")
    try:
        done = hosts.lab.cli("apply", str(hosts.file), "--yes", check=False)
        assert "and it has neither podman nor systemd-nspawn" in done.err
        assert "no machine was changed" in done.err
    finally:
        hosts.bare.inside(NODE, "mv", f"{program}.away", program)
    assert "listening on port 22, which SSH of the machine" in hosts.plan(hosts.spec(name="port", container_port="22"))
    assert {number: hosts.state(number) for number in (HEAD, NODE)} == hosts.before


def test_container_that_does_not_start_is_reported_with_its_error(hosts: Hosts) -> None:
    bare, runc = hosts.bare, "/usr/bin/runc"
    if hosts.runtime != "podman":
        pytest.skip("breaks podman's runtime")
    broken = "#!/bin/sh\necho 'runc: broken for a test' >&2\nexit 1\n"
    bare.inside(NODE, "mv", runc, f"{runc}.away")
    bare.inside(NODE, "sh", "-c", f'printf "%s" "$1" >{runc}; chmod 755 {runc}', "sh", broken)
    try:
        done = hosts.lab.cli("apply", str(hosts.file), "--yes", check=False, timeout_s=1800)
    finally:
        bare.inside(NODE, "mv", f"{runc}.away", runc)
    said = next(line for line in done.err.splitlines() if "does not start" in line)
    assert f"con-1-1: its container does not start on host {bare.address(NODE)}: " in said
    assert "broken for a test" in said


def test_apply_and_jobs(hosts: Hosts) -> None:
    bare, lab = hosts.bare, hosts.lab
    assert "con is ready" in lab.cli("apply", str(hosts.file), "--yes", timeout_s=1800).out
    assert "nothing to change" in lab.cli("apply", str(hosts.file), "--yes").out
    said = lab.head("srun", "sh", "-c", "hostname; id -un; cat /etc/os-release", user="ann").out
    assert said.startswith("con-1-1\nann\n")
    assert f'VERSION_ID="{bare.node_image.removeprefix("debian")}"' in said
    assert bare.inside(NODE, "hostname").strip() == f"rack{NODE}", "the host keeps its name"
    eats = "python3 -c 'x = bytearray(900 << 20)'"
    assert lab.head("srun", "--mem=200", "sh", "-c", eats, user="ann", check=False).code != 0


def test_killed_host_comes_back_with_its_machine(hosts: Hosts) -> None:
    lab, bare = hosts.lab, hosts.bare
    job = lab.sbatch("ann", "-o", "/scratch/ann/again.out", "--requeue", wrap="sleep 20; echo done on $(hostname)")
    lab.wait(lambda: lab.state_of(job) == "RUNNING", "the job to start")
    bare.power_cut(NODE)
    lab.wait(lambda: "down" in lab.head("sinfo", "-h", "-N", "-o", "%T").out, "the node to be set down")
    bare.power_on(NODE)
    assert lab.wait_job(job, patience_s=600) == "COMPLETED"
    assert "done on con-1-1" in lab.output("/scratch/ann/again.out")


def test_roll_replaces_the_image_in_place(hosts: Hosts) -> None:
    lab, bare = hosts.lab, hosts.bare
    before = {number: bare.inside(number, "cat", "/var/lib/headway/machine/image") for number in (HEAD, NODE)}
    hosts.installation.image(hosts.installation.smi + "# newer\n")
    lab.cli("server", "stop")
    lab.cli("server", "start")
    lab.forget_client()
    assert "run another node image" in hosts.plan(hosts.file)
    lab.cli("roll", "con", "--head", "--yes", timeout_s=1800)
    for number, image in before.items():
        assert bare.inside(number, "cat", "/var/lib/headway/machine/image") != image
    assert lab.head("srun", "hostname", user="ann").out.strip() == "con-1-1"
    accounting = lab.head("sacct", "-X", "-n", "-P", "-o", "State").out.split()
    assert "COMPLETED" in accounting, "the head keeps its records"


def test_job_opens_only_its_own_gpus(hosts: Hosts) -> None:
    """The host has got GPUs; the next apply uses them. (Their driver is missing, so a check will find them faulty.)"""
    lab, bare = hosts.lab, hosts.bare
    for number in range(GPUS):
        bare.inside(NODE, "mknod", f"/dev/nvidia{number}", "c", "195", str(number))
    bare.inside(NODE, "sh", "-c", 'printf "%s" "$1" >/usr/bin/nvidia-smi; chmod 755 /usr/bin/nvidia-smi', "sh", SMI)
    bare.inside(NODE, "systemctl", "restart", "headway-machine", timeout_s=300)
    lab.cli("apply", str(hosts.file), "--yes", timeout_s=600)
    # A GPU of the job fails for lack of hardware, any other is forbidden.
    opens = "for n in 0 1 2 3; do (exec 3</dev/nvidia$n) 2>&1 | grep -o 'No such device\\|not permitted'; done"
    told = lab.head("srun", "--gpus=2", "sh", "-c", opens, user="ann", check=False).out.splitlines()
    assert sorted(told) == ["No such device"] * 2 + ["not permitted"] * 2


def test_down_leaves_the_hosts_as_they_were(hosts: Hosts) -> None:
    hosts.lab.cli("down", "con", "--yes", "--delete-data", timeout_s=300)
    hosts.bare.inside(NODE, "rm", "-f", "/usr/bin/nvidia-smi", *(f"/dev/nvidia{n}" for n in range(GPUS)))
    for number in (HEAD, NODE):
        assert hosts.state(number) == hosts.before[number]
        assert "headway" not in hosts.bare.inside(number, "ps", "-A", "-o", "args")
