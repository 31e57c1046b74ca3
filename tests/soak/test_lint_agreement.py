"""lint agrees with sbatch of Slurm 26.05, 24.11 and 22.05. Only slurmctld and slurmd run, without systemd, in a container of each
node image: so the test also runs on hosts on which no cluster of Debian 14 can."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.images.podman import Podman
from tests.cluster.jobs.lint_agreement import COUNT, compare
from tests.cluster.lab import Done, Lab, frozen_mirrors_will_do
from tests.cluster.providers.bare_machines import run

pytestmark = pytest.mark.soak
BOOT_S = 300  # generous: the test asserts outcome, not speed
START = """\
set -e
cd /
for n in n1 n2; do mkdir -p /var/spool/slurmd-$n; done
mkdir -p /run/munge /var/lib/slurm /var/log/slurm
head -c 128 /dev/urandom >/etc/munge/munge.key
chown -R munge: /etc/munge /run/munge /var/lib/munge /var/log/munge; chmod 400 /etc/munge/munge.key; chmod 755 /run/munge
chown slurm: /var/lib/slurm /var/log/slurm
useradd -m ann
for n in 0 1 2 3 4 5 6 7; do [ -e /dev/nvidia$n ] || mknod /dev/nvidia$n c 195 $n; done
cat >/etc/slurm/slurm.conf <<'FILE_ENDS'
ClusterName=lint
SlurmctldHost=localhost
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmdSpoolDir=/var/spool/slurmd-%n
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
ReturnToService=2
EnforcePartLimits=ANY
NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=64 RealMemory=500000 Gres=gpu:h100:8
PartitionName=train Nodes=ALL Default=YES MaxTime=2-0
FILE_ENDS
echo 'Name=gpu Type=h100 File=/dev/nvidia[0-7]' >/etc/slurm/gres.conf
rm -f /etc/slurm/cgroup.conf
# Slurm 22.05 does not have this plugin
case $(sinfo --version) in *" 22.05"*) ;; *) echo CgroupPlugin=disabled >/etc/slurm/cgroup.conf ;; esac
rm -f /etc/slurm/plugstack.conf
runuser -u munge -- munged --force
slurmctld
for n in n1 n2; do slurmd -N $n; done
"""


class LoneSlurm:
    """Slurm in one container."""

    name = "lint"

    def __init__(self, container: str) -> None:
        self.container = container

    def head(self, *argv: str, user: str = "root", check: bool = True, stdin: str = "") -> Done:
        """Runs one command in the container."""
        words = ("podman", "exec", "-i", self.container, "runuser", "-u", user, "--", *argv)
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0 or not check, f"{argv} as {user} ended with {done.returncode}: {done.stderr[-800:]}"
        return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(params=["debian14", "debian13", "debian12"])
def slurm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LoneSlurm]:
    builder = Lab(tmp_path / "state", image=request.param)
    frozen_mirrors_will_do(builder)
    tag = builder.cli("image", "build", builder.image, timeout_s=1800).out.split()[0]
    podman = Podman(tmp_path)
    limits = asyncio.run(podman.limits(tag))
    machine = ("--privileged", "--label", "headway=1", "--hostname", "localhost", "--pull", "never")
    container = run(*podman.base(), "run", "--detach", *machine, *limits, tag, "sleep", "infinity").strip()
    try:
        made = LoneSlurm(container)
        made.head("sh", "-s", stdin=START)
        end = time.monotonic() + BOOT_S
        while made.head("sinfo", "-h", "-o", "%t %D", check=False).out.split() != ["idle", "2"]:
            assert time.monotonic() < end, made.head(
                "sh", "-c", "sinfo -R; tail -n 5 /var/log/slurm/*", check=False
            ).out
            made.head("scontrol", "ping", check=False)
        yield made
    finally:
        run("podman", "rm", "-f", "-t", "0", container)


def test_errors_of_lint_are_refusals_of_sbatch(slurm: LoneSlurm) -> None:
    found = compare(slurm, "ann", seed=7)
    assert found.false_errors == []
    assert found.refused > COUNT / 10
    assert len(found.missed) <= COUNT / 100, found.missed
