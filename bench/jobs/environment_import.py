"""Measures how long `import torch` of a large software environment takes with nothing in memory: from a disk of the node,
from shared storage over the network, and once the node's agent has staged the environment.

The environment is PyPI's torch for Linux with its CUDA libraries, built by `headway env add`. This kernel has no NFS, so
the node mounts the head's /environments by sshfs, which is taken from the host's own Debian mirror. "Cold" means that the
files were dropped from the page cache (posix_fadvise), and that sshfs was mounted again."""

from __future__ import annotations

import argparse
import asyncio
import functools
import hashlib
import http.server
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_cluster import BenchCluster, bench_cluster
from headway.catalog.node_images import IMAGES
from headway.images.apt_mirror import host_mirror

IMAGE = "debian13"
PYTHON = "313"  # of that image
SPEC = """\
name: bench
plan: h100-8
nodes: 1
teams:
  lab: {users: [bench]}
"""
HERE = "/environments/big/1"
LOCAL = "/var/tmp/big"
STAGED = "/var/lib/headway/environments/big/1"
STAGE_S = 900
PORT = 2222
HOST_KEY = "/etc/headway/boot/ssh_host_ed25519_key"
# Drops the files of a folder from the page cache, then prints the seconds of an import by the Python of another one.
COLD = """\
import os, subprocess, sys, time
for base, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(base, name)
        if not os.path.islink(path):
            handle = os.open(path, os.O_RDONLY)
            os.fdatasync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)
if len(sys.argv) > 2:
    began = time.monotonic()
    subprocess.run([sys.argv[2] + "/bin/python", "-c", "import torch"], check=True)
    print(time.monotonic() - began)
"""


def podman(*argv: str, timeout_s: float = 1800) -> str:
    """Returns podman's output. Exits when it fails."""
    ran = subprocess.run(["podman", *argv], capture_output=True, text=True, timeout=timeout_s, check=False)
    if ran.returncode:
        sys.exit(f"bench: podman {' '.join(argv[:4])} ...: {ran.stderr[-2000:]}")
    return ran.stdout


def sshfs(folder: Path) -> Path:
    """Returns the program sshfs of the image's Debian, from this host's mirror."""
    image = IMAGES[IMAGE]
    mirror = asyncio.run(host_mirror(image.suite, released=image.released))
    (folder / "sources.list").write_text("".join(f"{line}\n" for line in mirror.lines))
    settings = [
        f"Dir::Etc::sourcelist={folder}/sources.list", "Dir::Etc::sourceparts=-", f"Dir::State::lists={folder}/lists",
        f"Dir::Cache={folder}", f"APT::Default-Release={image.suite}", "APT::Sandbox::User=root",
    ]  # fmt: skip
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "apt.conf").write_text("".join(f"{line};\n" for line in mirror.apt_options))
    env = {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}
    for words in (["update"], ["download", "sshfs"]):
        argv = ["apt-get", "--quiet", *(word for text in settings for word in ("-o", text)), *words]
        subprocess.run(argv, cwd=folder, env=env, check=True, capture_output=True, timeout=600)
    subprocess.run(["dpkg-deb", "-x", *folder.glob("sshfs_*.deb"), folder / "root"], check=True, timeout=60)
    return folder / "root" / "usr" / "bin" / "sshfs"


def fetch_wheels(folder: Path) -> None:
    """Downloads torch and what it needs, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("torch-*.whl")):
        argv = ["pip", "download", "--quiet", "--python-version", PYTHON, "--only-binary=:all:", "torch"]
        subprocess.run([sys.executable, "-m", *argv], cwd=folder, check=True, timeout=3600, stderr=subprocess.DEVNULL)


def make_index(wheels: Path, folder: Path) -> None:
    """Makes a package index of the wheels, with their hashes: folder/NAME/index.html."""
    for wheel in sorted(wheels.glob("*.whl")):
        place = folder / wheel.name.partition("-")[0].lower().replace("_", "-")
        place.mkdir(parents=True)
        (place / wheel.name).symlink_to(wheel.resolve())
        with wheel.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        (place / "index.html").write_text(f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>\n')


@contextmanager
def served(folder: Path, address: str) -> Iterator[str]:
    """Serves the folder to the machines and yields its URL."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer((address, 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{address}:{server.server_port}/"
    finally:
        server.shutdown()


def build(at: BenchCluster, wheels: Path) -> float:
    """Builds the environment and returns its size in GB."""
    gateway = at.headway("exec", "bench", "--", "ip", "-4", "route", "show", "default").split()[2]
    requirements = at.folder / "requirements.txt"
    make_index(wheels, at.folder / "index")
    with served(at.folder / "index", gateway) as url:
        requirements.write_text(f"--index-url {url}\ntorch\n")
        ask = ["env", "add", "bench", "big", "--requirements", str(requirements), "--as", "bench"]
        at.headway(*ask, timeout_s=1800)
    return float(json.loads(at.headway("exec", "bench", "--", "cat", f"{HERE}/.headway.json"))["bytes"]) / 1e9


def mount_shared(node: str, head: str, program: Path) -> None:
    """Starts an SSH daemon on the head for the node's root alone, copies sshfs to the node, and mounts."""
    podman("cp", str(program), f"{node}:/usr/local/bin/sshfs")
    podman("exec", node, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/bench-key")
    key = podman("exec", node, "cat", "/root/bench-key.pub").strip()
    podman("exec", head, "sh", "-c", f"echo '{key}' >/root/bench-keys")
    settings = ("AuthorizedKeysFile=/root/bench-keys", "Subsystem=sftp internal-sftp", f"Port={PORT}", "UsePAM=no")
    options = [word for text in settings for word in ("-o", text)]
    podman("exec", head, "/usr/sbin/sshd", "-f", "/dev/null", "-h", HOST_KEY, *options)
    mount(node)


def mount(node: str) -> None:
    """Mounts the head's environments on the node."""
    options = "ro,allow_other,IdentityFile=/root/bench-key,StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null"
    options += f",port={PORT},no_contain_symlinks"  # a venv links to the Python of the machine
    podman("exec", node, "sshfs", "-o", options, "root@bench-head:/environments", "/environments")


def cold(node: str, files: str, prefix: str) -> float:
    """Returns the seconds of an import by the Python in `prefix`, after `files` were dropped from the page cache."""
    return float(podman("exec", node, "python3", "-c", COLD, files, prefix))


def shared_cold(node: str, head: str) -> float:
    """Returns the seconds of an import over the network, with nothing in memory on either side."""
    podman("exec", node, "umount", "/environments")
    podman("exec", head, "python3", "-c", COLD, HERE)
    mount(node)
    return cold(node, "/nonexistent", HERE)


def staged(node: str) -> float:
    """Waits until the node's agent has staged the environment, and returns the seconds."""
    began = time.monotonic()
    podman("exec", node, "systemctl", "start", "headway-agent")
    while f" {HERE} " not in podman("exec", node, "cat", "/proc/self/mountinfo"):
        if time.monotonic() - began > STAGE_S:
            sys.exit(f"bench: the agent has not staged it\n{podman('exec', node, 'journalctl', '-u', 'headway-agent')}")
        time.sleep(1)
    return time.monotonic() - began


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--wheels", type=Path, help="a folder that keeps the downloaded wheels")
    arguments = words.parse_args()
    with bench_cluster(SPEC) as at, tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        folder = Path(place)
        program = sshfs(folder)
        wheels = arguments.wheels or folder / "wheels"
        fetch_wheels(wheels)
        at.headway("image", "build", IMAGE, timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        size = build(at, wheels)
        print(f"the environment has {size:.1f} GB", flush=True)
        node, head = at.container("bench-1-1"), at.container("bench-head")
        podman("exec", node, "systemctl", "stop", "headway-agent")
        podman("exec", node, "cp", "-a", HERE, LOCAL)
        times = {"local disk, cold": [cold(node, LOCAL, LOCAL) for _ in range(arguments.rounds)]}
        mount_shared(node, head, program)
        times["shared, cold"] = [shared_cold(node, head) for _ in range(arguments.rounds)]
        print(f"staged after {staged(node):.0f} s", flush=True)
        times["staged, cold"] = [cold(node, STAGED, HERE) for _ in range(arguments.rounds)]
        times["staged, in memory"] = [cold(node, "/nonexistent", HERE) for _ in range(arguments.rounds)]
        # again, for a machine whose load has changed meanwhile
        times["local disk, cold"] += [cold(node, LOCAL, LOCAL) for _ in range(arguments.rounds)]
        base = statistics.median(times["local disk, cold"])
        for name, found in times.items():
            middle = statistics.median(found)
            print(f"import torch, {name}: {middle:.1f} s ({middle / base:.2f} of local disk, cold)")


if __name__ == "__main__":
    main()
