"""Exported Slurm files run without Headway: a head and a node of plain Debian are set up with the commands of the exported
README. Their Slurm says of partitions, QOS and accounts the same as the cluster's, and runs a user's job on a GPU."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.lab import Lab
from tests.cluster.providers.bare_machines import Bare
from tests.cluster.slurm import old_site

pytestmark = pytest.mark.soak
HEAD, NODE = 10, 11
GPUS = 8
SPEC = """\
name: lab
image: %s
plan: h100-8
nodes: 2
fabric: {leaf_size: 1}
partitions:
  train: {default: true, max_time: "7-00:00:00", default_time: "1:00:00", grace_time: 20}
  debug: {nodes: 1, max_time: "02:00:00", per_user: {running_jobs: 2, submitted_jobs: 5, gpus: 4}}
  urgent: {tier: 2, preempts: [train, debug], teams: [vision]}
teams:
  vision: {users: [alice, vera], leads: [vera], share: 60}
  small: {users: [carol], share: 10, limits: {gpu_hours: {hours: 1, per: month}, running_jobs: 2}}
  quota: {users: [quinn, alice], share: 10, limits: {per_user: {submitted_jobs: 10, gpus: 12, cpus: 400, recent_gpu_hours: 2}}}
"""
ASSOCIATIONS = (
    "sacctmgr",
    "-nP",
    "show",
    "assoc",
    "format=account,user,share,grptresmins,maxsubmitjobs,qos,defaultqos",
)
LIMITS = (
    "sacctmgr", "-nP", "show", "qos", "format=name,flags,grpjobs,grpsubmitjobs,grptres,grptresmins,maxjobspu,maxsubmitjobspu,"
    "maxtrespu",
)  # fmt: skip


@pytest.fixture(scope="module", params=["debian13", "debian12"])  # Slurm 24.11 and 22.05
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("export"), image=request.param)
    with made.applied(SPEC % made.image):
        yield made


@pytest.fixture
def plain(lab: Lab, tmp_path: Path) -> Iterator[Bare]:
    made = Bare(tmp_path / "bare", lab.image, shared=False, packages=old_site.PACKAGES)
    try:
        made.up(HEAD, NODE)
        yield made
    finally:
        made.down()


def stand_up(plain: Bare, folder: Path, machines: dict[int, str]) -> None:
    """Does what the exported README says on the machines: {number: name}, the head first."""
    by_name = {name: number for number, name in machines.items()}
    rows = (line.split() for line in (folder / "hosts").read_text().splitlines())
    # Machines that do not exist here have the addresses of nothing.
    hosts = "".join(f"{plain.address(by_name.get(name, 200))} {name}\n" for _, name in rows)
    blocks = re.findall(r"```sh\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    key = ""
    for (number, name), block in zip(machines.items(), blocks, strict=True):
        files = {file.name: file.read_text() for file in folder.iterdir()} | {"hosts": hosts}
        write = "".join(f"cat >/root/plain/{file} <<'FILE_ENDS'\n{text}FILE_ENDS\n" for file, text in files.items())
        prepare = f"mkdir /root/plain\n{write}sed -i '/^127.0.1.1/d' /etc/hosts; echo {name} >/etc/hostname; hostname {name}\n"
        if key:
            prepare += f"echo {key} | base64 -d >/root/plain/munge.key\n"
            prepare += f"for n in $(seq 0 {GPUS - 1}); do mknod -m 666 /dev/nvidia$n c 195 $n; done\n"
        plain.inside(
            number,
            "sh",
            "-c",
            f"set -e\n{prepare}export DEBIAN_FRONTEND=noninteractive\ncd /root/plain\n{block}",
            timeout_s=180,
        )
        key = plain.inside(number, "base64", "-w0", "/etc/munge/munge.key")


def same(what: str, cluster: str, plain: str) -> None:
    """Asserts that both say the same, and prints it."""
    rows = [sorted(line.rstrip() for line in text.splitlines() if line.strip()) for text in (cluster, plain)]
    assert rows[0] == rows[1]
    sys.stdout.write(f"{what}: {len(rows[0])} lines are the same\n")


def test_plain_slurm_runs_from_exported_files(lab: Lab, plain: Bare, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    began = time.monotonic()
    told = lab.cli("export", "slurm", "lab", "--to", str(folder), "-o", "json").json()
    assert told["kept"] > 100
    assert sorted(told["files"]) == sorted(str(file) for file in folder.iterdir())
    again = lab.cli("export", "slurm", "lab", "--to", str(folder), check=False)
    assert again.code != 0
    assert "already exists" in again.err
    secrets = [lab.head("base64", "-w0", path).out for path in ("/etc/munge/munge.key", "/etc/slurm/jwt_hs256.key")]
    assert not any(secret in file.read_text() for secret in secrets for file in folder.iterdir())

    stand_up(plain, folder, {HEAD: "lab-head", NODE: "lab-1-1"})

    partitions = ("scontrol", "show", "partition", "-o")
    same("scontrol show partition", lab.head(*partitions).out, plain.inside(HEAD, *partitions))
    own = [
        f"root|headway|{rest}"
        for rest in re.findall(r"^root\|headway\|(.*)$", lab.head(*ASSOCIATIONS).out, re.MULTILINE)
    ]
    assert len(own) == 1  # the account through which Headway acts
    users = "\n".join(line for line in lab.head(*ASSOCIATIONS).out.splitlines() if line not in own)
    same("sacctmgr show assoc", users, plain.inside(HEAD, *ASSOCIATIONS))
    same("sacctmgr show qos", lab.head(*LIMITS).out, plain.inside(HEAD, *LIMITS))

    plain.wait(lambda: "idle" in plain.inside(HEAD, "sinfo", "-hn", "lab-1-1", "-o", "%t"))
    job = 'hostname; id -un; id -u; echo "gpus $CUDA_VISIBLE_DEVICES"; echo "account $SLURM_JOB_ACCOUNT"'
    srun = f"cd /; srun --partition=train --gpus=2 -w lab-1-1 sh -c '{job}'"
    said = plain.inside(HEAD, "su", "alice", "-c", srun).split("\n")
    uid = lab.head("id", "-u", "alice").out.strip()
    assert said[:5] == ["lab-1-1", "alice", uid, "gpus 0,1", "account vision"]
    refused = plain.inside(HEAD, "su", "carol", "-c", "cd /; srun --partition=urgent true 2>&1; true")
    assert "Invalid account" in refused
    sys.stdout.write(f"plain Slurm ran a job {time.monotonic() - began:.0f} s after the export\n{said}\n{refused}\n")
