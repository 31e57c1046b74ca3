"""Power cuts, machines that never boot, daemons that cannot start, a full disk and a second cluster of the same name
each end with a helpful message and a working cluster."""

from __future__ import annotations

import contextlib
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

from headway.providers.local.mounts import read_mounts
from headway.sdk.local_server import running_server

ROOT = Path(__file__).parents[3]
SPEC = """\
name: bad
plan: h100-8
nodes: {nodes}
teams: {{vision: {{users: [{users}], share: 1}}}}
"""
STANDSTILL_S = 25  # more than a node's lease: node/agent/lost_contact/node_lease.py
# Runs podman, but while the file `dark` is next to it, a head gets a system that never boots.
PODMAN = """#!/bin/bash
if [[ -e "${0%/*}/dark" && " $* " == *" run --detach "*" --hostname bad-head "* ]]; then
    exec REAL "${@:1:$#-1}" sleep 600
fi
exec REAL "$@"
"""
# Stops journald until slurmd has failed: journald then can't find out which unit the failed process was of, as on a busy
# machine.
SLOW_JOURNAL = """
journald=$(systemctl show --property MainPID --value systemd-journald)
kill -STOP "$journald"
for _ in {1..600}; do
    [ "$(systemctl show --property Result --value slurmd)" = exit-code ] && break
    sleep 0.1
done
kill -CONT "$journald"
"""


def write(lab: Lab, nodes: int = 2, users: str = "ann") -> str:
    file = lab.state / "bad.yaml"
    file.write_text(SPEC.format(nodes=nodes, users=users))
    return str(file)


@contextlib.contextmanager
def made(state: Path) -> Iterator[Lab]:
    """Yields a lab with the impatient server and a podman wrapper for it in state/bin."""
    lab = Lab(state, name="bad")
    real = shutil.which("podman") or "podman"
    program = state / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(PODMAN.replace("REAL", real))
    program.chmod(0o755)
    env = {**lab.env, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    server = subprocess.Popen([sys.executable, "-m", "tests.cluster.outages.impatient_server"], cwd=ROOT, env=env)
    try:
        lab.wait(lambda: running_server(state), "the server")
        yield lab
    finally:
        lab.down()
        server.wait(timeout=240)


@pytest.fixture(scope="module")
def lab(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with made(tmp_path_factory.mktemp("bad") / "state") as one:
        one.cli("apply", write(one), "--yes", timeout_s=600)
        yield one


def all_usable(lab: Lab) -> bool:
    return lab.cli("status", check=False).code == 0


def test_power_cut_of_all_machines_costs_a_job_one_restart(lab: Lab) -> None:
    wrap = "echo restart ${SLURM_RESTART_COUNT:-0}; while [ ! -e go ]; do sleep 0.1; done"
    job = lab.sbatch("ann", "--requeue", "--open-mode=append", "--output=out.txt", wrap=wrap)
    lab.wait(lambda: "restart 0" in lab.head("cat", "out.txt", user="ann", check=False).out, "the job to speak")
    lab.wait(lambda: str(job) in lab.cli("queue", check=False).out, "the server to have figures that can get old")
    machines = [lab.container(name) for name in ("bad-head", "bad-1-1", "bad-1-2")]
    lab.podman("kill", *machines)
    lab.wait(lambda: lab.client.clusters.get("bad").stale, "the server to notice")
    status = lab.cli("status", check=False)
    assert status.code == 1
    assert "bad is degraded" in status.out
    assert "run headway apply" in status.out
    assert "this data is old" in lab.cli("queue").err
    lab.cli("apply", write(lab), "--yes")
    # The controller does not count the second run as a restart if its last save, seconds old, had the job pending.
    lab.wait(
        lambda: lab.head("cat", "/home/ann/out.txt", check=False).out.count("restart") == 2, "the job to run again"
    )
    lab.head("touch", "/home/ann/go", user="ann")
    assert lab.wait_job(job) == "COMPLETED"
    lab.wait(lambda: all_usable(lab), "all nodes to be back in service")


def test_host_that_stands_still_ends_no_job(lab: Lab) -> None:
    """As a suspended laptop, or a paused virtual machine, with the whole cluster."""
    job = lab.sbatch("ann", "--nodes=2", "--requeue", wrap="srun sh -c 'while [ ! -e ~/awake ]; do sleep 0.1; done'")
    lab.wait_job(job, "RUNNING")
    lab.wait(lambda: all_usable(lab), "both nodes to be in service")
    before = lab.cli("incidents", "-o", "json").json()  # of the power cut
    server = running_server(lab.state)
    assert server is not None
    nodes, head = [lab.container("bad-1-1"), lab.container("bad-1-2")], lab.container("bad-head")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        lab.podman("pause", *nodes, head)
        time.sleep(STANDSTILL_S)
        lab.podman("unpause", head, *nodes)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    for node in nodes:
        log = ("exec", node, "journalctl", "--unit=headway-agent", "--output=cat")
        lab.wait(lambda log=log: "was suspended together with" in lab.podman(*log), "the node's agent to notice")  # type: ignore[misc]
    assert (lab.state_of(job), lab.field(job, "Restarts")) == ("RUNNING", "0")
    lab.head("touch", "/home/ann/awake", user="ann")
    assert lab.wait_job(job) == "COMPLETED"
    assert lab.cli("incidents", "-o", "json").json() == before


def test_apply_names_a_daemon_that_cannot_start_with_its_error(lab: Lab) -> None:
    node = lab.container("bad-1-2")
    lab.podman("exec", node, "sh", "-c", "mv /usr/sbin/slurmd /usr/sbin/gone && systemctl stop slurmd")
    lab.podman("exec", "--detach", node, "bash", "-c", SLOW_JOURNAL)
    try:
        failed = lab.cli("apply", write(lab), "--yes", check=False)
    finally:
        lab.podman("exec", node, "mv", "/usr/sbin/gone", "/usr/sbin/slurmd")
    assert failed.code == 1
    assert "bad-1-2" in failed.err
    assert "/usr/sbin/slurmd" in failed.err
    lab.cli("apply", write(lab), "--yes")
    lab.wait(lambda: all_usable(lab), "the node to be back in service")


def test_apply_recreates_a_machine_that_does_not_answer(lab: Lab) -> None:
    node = lab.container("bad-1-1")
    lab.podman("exec", node, "mv", "/usr/sbin/sshd", "/usr/sbin/gone")
    lab.podman("kill", node)
    lab.podman("start", node)
    (lab.state / "hasty").write_text("bad-1-1")
    output = lab.cli("apply", write(lab), "--yes")
    assert "bad-1-1 did not answer SSH within 12 s" in output.out
    assert "recreated" in output.out
    assert lab.head("srun", "-w", "bad-1-1", "hostname", user="ann").out == "bad-1-1\n"


def test_same_name_cluster_fails_and_recovers_without_affecting_the_first(lab: Lab, tmp_path: Path) -> None:
    """The second cluster has its own state folder on its own small disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", str(disk)], check=True)
    try:
        with made(disk / "state") as other:
            _dark_head(other)
            _side_by_side(lab, other)
            _full_disk(other, disk)
        assert _left(other) == []
        assert [point for point in read_mounts() if point.startswith(f"{disk}/")] == []
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
    lab.wait(lambda: all_usable(lab), "all nodes to be in service, as they were")


def _left(lab: Lab) -> list[str]:
    """Returns the containers and networks of a lab's state folder."""
    instance = f"label=headway.instance={_instance(lab)}"
    return (
        lab.podman("ps", "-aq", "--filter", instance).split()
        + lab.podman("network", "ls", "-q", "--filter", instance).split()
    )


def _instance(lab: Lab) -> str:
    from headway.providers.local.provider import LocalProvider

    return LocalProvider(lab.state).instance


def _dark_head(lab: Lab) -> None:
    (lab.state / "bin" / "dark").touch()
    (lab.state / "hasty").write_text("bad-head")
    began = time.monotonic()
    failed = lab.cli("apply", write(lab, nodes=1), "--yes", check=False)
    assert failed.code == 7
    assert "bad-head did not answer SSH within 12 s" in failed.err
    assert f"podman exec headway-{_instance(lab)}-bad-bad-head journalctl" in failed.err
    assert time.monotonic() - began < 240
    lab.cli("down", "bad", "--yes")
    assert _left(lab) == []
    (lab.state / "bin" / "dark").unlink()
    lab.cli("apply", write(lab, nodes=1), "--yes")


def _side_by_side(one: Lab, other: Lab) -> None:
    for of in (one, other):
        assert of.head("srun", "-n1", "hostname", user="ann").out.startswith("bad-1-")
    addresses = [of.head("hostname", "-I").out.split()[0] for of in (one, other)]
    assert addresses[0].rpartition(".")[0] != addresses[1].rpartition(".")[0]
    assert one.client.url != other.client.url


def _full_disk(lab: Lab, disk: Path) -> None:
    filler = disk / "filler"
    # Unbuffered: data left in a buffer by a full disk would be written again when the file is closed.
    with filler.open("wb", buffering=0) as out, contextlib.suppress(OSError):
        while True:
            out.write(bytes(1 << 16))
    failed = lab.cli("apply", write(lab, nodes=1, users="ann, ben"), "--yes", check=False)
    assert failed.code != 0
    assert "full" in failed.err or "MiB free" in failed.err
    lab.cli("status", check=False)
    filler.unlink()
    lab.cli("apply", write(lab, nodes=1, users="ann, ben"), "--yes")
    assert lab.head("srun", "-n1", "id", "-un", user="ben").out == "ben\n"
