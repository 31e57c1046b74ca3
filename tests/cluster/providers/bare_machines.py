"""Bare machines for tests of owned machines: containers of plain Debian with only systemd and sshd, which stand in
for the machines of an inventory. They install packages from their own sources, which are this host's."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from headway.images.apt_mirror import host_mirror
from headway.images.build import ensure_image
from headway.images.container_removal import remove_containers
from headway.images.podman import Podman, file_lock, host_lock_folder
from headway.images.recipe import BASE_REPOSITORY, base_hash
from headway.providers.local import network
from headway.providers.local.provider import systemd_argv

_STATE = Path(tempfile.gettempdir())  # where Podman keeps its version
SUITES = {"debian13": "trixie", "debian12": "bookworm", "sid": "sid"}
PLAIN = "systemd,systemd-sysv,dbus,openssh-server,sudo,iproute2,ca-certificates"
# Units that would act on the host itself, or need a device that a container lacks.
_MASKED = "systemd-udevd.service systemd-udev-trigger.service systemd-sysctl.service systemd-modules-load.service"
_BAKED_UNITS = (
    "slurmctld slurmd slurmdbd slurmrestd munge mariadb prometheus prometheus-alertmanager haproxy nfs-server"
)
_BOOT_S = 300  # generous: tests assert outcome, not speed, and machines may boot on a busy host


def run(*argv: str, timeout_s: float = 240, stdin: bytes | None = None, check: bool = True) -> str:
    done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout_s, check=False)
    said = (done.stderr + done.stdout).decode(errors="replace")
    assert done.returncode == 0 or not check, f"{shlex.join(argv)} ended with {done.returncode}: {said[-800:]}"
    return done.stdout.decode(errors="replace")


def image(system: str, packages: str = "") -> str:
    """Returns the tag of the plain image, which is built at first use from this host's own mirror. `packages`: further
    packages, separated by commas."""
    suite = SUITES[system]
    mirror = asyncio.run(host_mirror(suite))
    tag = f"localhost/headway-bare:{'-'.join([system, *packages.split(',')]).rstrip('-')}"
    if subprocess.run(["podman", "image", "exists", tag], check=False).returncode == 0:
        return tag
    make = ["mmdebstrap", "--mode=root", "--variant=minbase", "--format=tar", "--components=main"]
    make += [f"--include={PLAIN},{packages}".rstrip(",")]
    make += [f"--aptopt={text}" for text in mirror.apt_options]
    hooks = [
        'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname "$1"/etc/resolv.conf',
        f'for unit in {_MASKED}; do ln -sf /dev/null "$1/etc/systemd/system/$unit"; done',
        'echo force-unsafe-io >"$1/etc/dpkg/dpkg.cfg.d/quick"',
        'chroot "$1" useradd --create-home --shell /bin/bash ops',
        'echo ops:sesame | chroot "$1" chpasswd',
    ]
    make += [f"--customize-hook={hook}" for hook in hooks]
    packed = subprocess.Popen([*make, suite, "-", *mirror.lines], stdout=subprocess.PIPE)
    labels = ["--change", "LABEL headway=1", "--change", 'CMD ["/sbin/init"]', "--change", "STOPSIGNAL SIGRTMIN+3"]
    done = subprocess.run(
        ["podman", "import", "--quiet", *labels, "-", tag], stdin=packed.stdout, check=False, timeout=900
    )
    assert (packed.wait(), done.returncode) == (0, 0), "the plain image could not be made"
    return tag


def baked_image(system: str = "debian13") -> str:
    """Returns the tag of a plain image with cloud-init and all packages of the node image, whose base it is made from: on its
    machines nothing is downloaded. It is built at first use."""
    asyncio.run(ensure_image(system))
    base = f"{system}-{base_hash(system)}"
    tag, draft = f"localhost/headway-bare:{base}-cloud-init", f"headway-bare-draft-{os.getpid()}"
    if subprocess.run(["podman", "image", "exists", tag], check=False).returncode == 0:
        return tag
    podman = Podman(_STATE)
    limits = asyncio.run(podman.limits(f"{BASE_REPOSITORY}:{base}"))
    script = f"""set -e
apt-get --quiet update
apt-get --quiet --yes --no-install-recommends install cloud-init
rm -f /etc/ssh/ssh_host_* /etc/machine-id
touch /etc/machine-id
for unit in {_MASKED}; do ln -sf /dev/null /etc/systemd/system/$unit; done
systemctl disable {_BAKED_UNITS}
systemctl enable ssh.service
useradd --create-home --shell /bin/bash ops
echo ops:sesame | chpasswd
"""
    options = ("--name", draft, "--label", "headway=1", "--network", "host", "--pull", "never")
    changes = ("--change", 'CMD ["/sbin/init"]', "--change", "STOPSIGNAL SIGRTMIN+3", "--change", "LABEL headway=1")
    try:
        run(*podman.base(), "run", *options, *limits, f"{BASE_REPOSITORY}:{base}", "sh", "-c", script, timeout_s=900)
        run("podman", "commit", "--quiet", *changes, draft, tag, timeout_s=600)
    finally:
        run("podman", "rm", "--force", draft, check=False)
    return tag


def remove(containers: list[str]) -> None:
    """Removes the machines with these containers."""
    if containers:
        asyncio.run(remove_containers(Podman(_STATE), containers, timeout_s=300))


@dataclass
class Bare:
    """Bare machines on their own network, named by their number: 10, 11, ... With `shared`, all mount the same /home
    and /scratch. `packages`: what they have besides a plain Debian, separated by commas."""

    folder: Path
    system: str = "debian13"
    shared: bool = True
    packages: str = ""
    tag: str = ""  # of their image; "" = the plain one
    node_image: str = ""  # of the cluster file; "" = the same system as the machines
    name: str = ""
    subnet: str = ""
    made: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name = f"headway-bare-{os.getpid()}-{len(str(self.folder))}-{self.folder.name}"
        self.key = self.folder / "key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        for part in ("home", "scratch"):
            (self.folder / part).mkdir(exist_ok=True)
        (self.folder / "scratch").chmod(0o1777)
        labels = ("--label", "headway=1", "--label", f"headway.owner={self.name}")
        # The lock of local clusters, which may be made at the same moment.
        with file_lock(host_lock_folder() / "headway-network.lock"):
            listed = network.listed_networks(json.loads(run("podman", "network", "ls", "--format", "json")))
            self.subnet = str(network.choose_subnet(self.name, [*listed, *network.routed_networks()]))
            run("podman", "network", "create", "--disable-dns", "--subnet", self.subnet, *labels, self.name)

    def address(self, number: int) -> str:
        return self.subnet.rsplit(".", 1)[0] + f".{number}"

    def container(self, number: int) -> str:
        return f"{self.name}-{number}"

    def up(self, *numbers: int) -> None:
        """Creates and boots the machines with these numbers."""
        tag = self.tag or image(self.system, self.packages)
        podman = Podman(self.folder)
        limits = asyncio.run(podman.limits(tag))
        for number in numbers:
            binds = [f"{self.folder / part}:/{part}" for part in ("home", "scratch")] if self.shared else []
            argv = [
                *("run", "--detach", "--privileged", *systemd_argv(), "--name", self.container(number)),
                *("--network", self.name, "--ip", self.address(number), "--hostname", f"rack{number}", "--no-hosts"),
                *(
                    "--dns",
                    "none",
                    "--log-driver",
                    "none",
                    "--pids-limit",
                    "-1",
                    "--label",
                    "headway=1",
                    "--pull",
                    "never",
                ),
                *("--label", f"headway.owner={self.name}"),
                *(part for bind in binds for part in ("--volume", bind)),
            ]
            run(*podman.base(), *argv, *limits, tag, "/sbin/init", timeout_s=120)
            self.made.append(number)
        for number in numbers:
            self._finish(number)

    def _finish(self, number: int) -> None:
        """Adds what an installer would leave: host keys, a name, a resolver, and the users who may sign in."""
        key = self.key.with_suffix(".pub").read_text()
        resolver = "".join(
            line + "\n" for line in Path("/etc/resolv.conf").read_text().splitlines() if line.startswith("nameserver")
        )
        script = f"""set -e
umount /etc/hostname 2>/dev/null || true
echo rack{number} >/etc/hostname
umount /etc/resolv.conf 2>/dev/null || true
printf '%s' {shlex.quote(resolver)} >/etc/resolv.conf
printf '127.0.0.1 localhost\\n127.0.1.1 rack{number}\\n192.0.2.9 files.example.org\\n' >/etc/hosts
ssh-keygen -A >/dev/null
for home in /root /home/ops; do
    mkdir -p -m 700 $home/.ssh
    printf '%s' {shlex.quote(key)} >$home/.ssh/authorized_keys
done
chown -R ops:ops /home/ops
systemctl reset-failed ssh.service
systemctl restart ssh.service
"""
        self.wait(
            lambda: (
                self.inside(number, "systemctl", "is-system-running", check=False).strip() in ("running", "degraded")
            )
        )
        self.inside(number, "sh", "-c", script)
        self.wait(lambda: _answers(self.address(number)))

    def power_cut(self, number: int) -> None:
        """Kills a machine without a shutdown."""
        run("podman", "kill", self.container(number))

    def stand_still(self, number: int) -> None:
        """Freezes a machine, so that neither its programs nor its kernel answer, like a suspended machine."""
        self._set_network(number, up=False)
        run("podman", "pause", self.container(number))

    def go_on(self, number: int) -> None:
        """Continues a machine that `stand_still` froze."""
        run("podman", "unpause", self.container(number))
        self._set_network(number, up=True)

    def _set_network(self, number: int, *, up: bool) -> None:
        network.set_link(int(run("podman", "inspect", "--format", "{{.State.Pid}}", self.container(number))), up=up)

    def power_on(self, number: int) -> None:
        """Starts a machine, and removes the name and resolver of its first boot, which podman mounts again and no
        real machine has."""
        run("podman", "start", self.container(number), timeout_s=120)
        self.inside(number, "sh", "-c", "umount /etc/hostname /etc/resolv.conf; hostname $(cat /etc/hostname)")
        self.wait(lambda: "bus" in self.inside(number, "ls", "/run/dbus", check=False))
        self.inside(number, "systemctl", "restart", "systemd-journald", "ssh")

    def inside(self, number: int, *argv: str, check: bool = True, timeout_s: float = 240) -> str:
        """Runs a command in a machine without SSH and returns its output."""
        return run("podman", "exec", self.container(number), *argv, check=check, timeout_s=timeout_s)

    def sudo(self, numbers: Iterable[int], *, password: bool) -> None:
        """Lets the user `ops` become root by sudo, with the password sesame or without one."""
        for number in numbers:
            line = "ops ALL=(ALL) ALL" if password else "ops ALL=(ALL) NOPASSWD: ALL"
            self.inside(number, "sh", "-c", f"echo '{line}' >/etc/sudoers.d/ops; chmod 440 /etc/sudoers.d/ops")

    def wait(self, ask: Callable[[], bool]) -> None:
        ends = time.monotonic() + _BOOT_S
        while not ask():
            assert time.monotonic() < ends, "a bare machine did not come up"
            time.sleep(0.1)

    def spec(self, name: str, numbers: Iterable[int], more: str = "", *, host: str = "") -> Path:
        """Writes a cluster file with these machines, the head first, and returns its path. `host`: further fields of
        each host."""
        rows = [f"- {{address: {self.address(n)}, key: {self.key}{', ' + host if host else ''}}}" for n in numbers]
        nodes = len(rows) - 1
        file = self.folder / f"{name}.yaml"
        text = f"name: {name}\nprovider: ssh\nimage: {self.node_image or self.system}\nplan: cpu-64\nnodes: {nodes}\nhosts:\n"
        file.write_text(text + "".join(f"  {row}\n" for row in rows) + more)
        return file

    def down(self) -> None:
        remove([self.container(number) for number in self.made])
        run("podman", "network", "rm", "--force", self.name, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def _answers(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=2) as there:
            return there.recv(4) == b"SSH-"
    except OSError:
        return False
