"""Errors of containers name the mistake, and what fails leaves nothing behind."""

from __future__ import annotations

import base64

import pytest
from tests.cluster.containers import container_registry as registries
from tests.cluster.containers.container_images import OCI, images, log_in, no_node_is_drained, registry, srun
from tests.cluster.containers.container_registry import Registry
from tests.cluster.lab import Lab

__all__ = ["images", "no_node_is_drained", "registry"]  # fixtures

LYING_LAYOUT = r"""
set -eu
cd /scratch/vito
rm -rf lie; cp -r oci lie
digest() {
    row=$(grep -o '"digest":"sha256:[0-9a-f]*","size":[0-9]*,"annotations":{"[^"]*":"'"$1"'"' lie/index.json)
    row=${row#*sha256:}; echo "${row%%\"*}"
}
umoci new --image lie:other
cp "lie/blobs/sha256/$(digest other)" "lie/blobs/sha256/$(digest tiny)"
chmod -R go+rX lie
"""


# ---- mistakes and faults


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--container-image={host}#team/lost:1"], "there is no image {host}/team/lost:1"),
        (["--container-image={host}#team/arm:1"], "is for arm64; this node is amd64"),
        (["--container-image=oci:/scratch/vito/oci:arm"], "is for arm64; this node is amd64"),
        (["--container-image=Not/An/Image"], "lower case"),
        (["--container-image=/etc/hostname"], "is not a squashfs image"),
        (["--container-image=/etc"], "is not an OCI layout"),
        (["--container-image=127.0.0.1:9#a/b"], "the registry 127.0.0.1:9 can't be reached"),
        ([OCI, "--container-mounts=/root:/x"], "you may not read /root"),
        ([OCI, "--container-mounts=/lost:/x"], "/lost can't be mounted"),
        ([OCI, "--container-mounts=/tmp:/x:odd"], "odd is no flag"),
    ],
)
def test_container_errors_name_the_mistake(lab: Lab, registry: Registry, flags: list[str], words: str) -> None:
    done = srun(lab, *(flag.format(host=registry.host) for flag in flags), "true", check=False)
    assert done.code != 0
    assert words.format(host=registry.host) in done.err
    assert "Traceback" not in done.err


def test_missing_and_wrong_registry_passwords_are_explained(lab: Lab, registry: Registry) -> None:
    image = f"--container-image={registry.host}#team/tiny:1"
    none = srun(lab, image, "true", user="vera", check=False)
    assert "requires a password" in none.err
    assert "skopeo login" in none.err
    log_in(lab, registry, "viola", "wrong-" + registry.password)
    wrong = srun(lab, image, "true", user="viola", check=False)
    assert "refuses your user name and password" in wrong.err
    assert registry.password not in none.err + wrong.err
    assert none.code != 0
    assert wrong.code != 0


def test_full_disk_during_import_is_reported_and_leaves_no_files(lab: Lab, images: None) -> None:
    lab.head("rm", "-rf", "/scratch/sonia/.containers")
    lab.podman(
        "exec",
        lab.container("lab-2-1"),
        "sh",
        "-c",
        "mkdir -p /mnt/full && mount -t tmpfs -o size=64k,mode=1777 none /mnt/full",
    )
    try:
        done = lab.head(
            "env", "TMPDIR=/mnt/full", "srun", "-w", "lab-2-1", OCI, "true", user="sonia", check=False
        )  # fmt: skip
    finally:
        lab.podman("exec", lab.container("lab-2-1"), "umount", "-l", "/mnt/full")
    assert done.code != 0
    assert "the disk is full" in done.err
    assert lab.head("bash", "-c", "ls -A /scratch/sonia/.containers | grep -v -e lock -e used || true").out == ""
    assert "Tiny 1" in srun(lab, OCI, "cat", "/etc/os-release", user="sonia").out


def test_import_can_be_cancelled_and_exposes_no_password(lab: Lab, registry: Registry) -> None:
    lab.head("rm", "-rf", "/scratch/vito/.containers")
    image = f"{registry.host}#team/tiny:1"
    with registry.asleep():
        job = lab.sbatch(
            "vito", "-w", "lab-1-2", f"--container-image={image}", "-o", "/scratch/vito/c.out", wrap="true"
        )
        node = lab.container("lab-1-2")
        lab.wait(lambda: "skopeo" in lab.podman("exec", node, "ps", "-eo", "args"), "skopeo to run")
        seen = lab.podman("exec", node, "sh", "-c", "ps -eo args; cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '")
        assert registry.password not in seen
        assert base64.b64encode(f"{registries.USER}:{registry.password}".encode()).decode() not in seen
        lab.head("scancel", str(job), user="vito")
        assert lab.wait_job(job) == "CANCELLED"
        lab.wait(lambda: "skopeo" not in lab.podman("exec", node, "ps", "-eo", "args"), "skopeo to be gone")
        lab.wait(lambda: "idle" in lab.head("sinfo", "-h", "-n", "lab-1-2", "-o", "%t").out, "the node to be free")
    assert "Tiny 1" in srun(lab, f"--container-image={image}", "cat", "/etc/os-release", user="vito").out


def test_signals_reach_the_program_in_the_container(lab: Lab, images: None) -> None:
    script = f"""#!/bin/bash
#SBATCH -o /scratch/stan/signals.out
srun {OCI} bash -c 'trap "cat /etc/os-release; exit 0" TERM; echo up; while :; do sleep 0.1; done'
"""
    lab.head("rm", "-f", "/scratch/stan/signals.out")
    job = lab.sbatch("stan", script=script)
    lab.wait(lambda: "up" in lab.head("cat", "/scratch/stan/signals.out", check=False).out, "the program to be up")
    lab.head("scancel", "--signal=TERM", f"{job}.0", user="stan")
    lab.wait_job(job)
    assert "Tiny 1" in lab.output("/scratch/stan/signals.out")


def test_corrupt_oci_layout_is_refused_and_not_cached(lab: Lab, images: None) -> None:
    """Its index names tiny's digest, but the layout contains another manifest."""
    lab.head("bash", "-s", user="vito", stdin=LYING_LAYOUT)
    lab.head("rm", "-rf", "/scratch/carol/.containers")
    lie = "--container-image=oci:/scratch/vito/lie:tiny"
    job = lab.sbatch("carol", "-o", "/scratch/carol/lie.out", wrap=f"srun {lie} true")
    assert lab.wait_job(job) == "FAILED"
    said = "does not hold what it says"  # for a job that has ended; its epilog may still run
    lab.wait(lambda: said in lab.cli("job", "lab", str(job)).out, "the job's page to say why")
    lab.cli("container", "import", "lab", "oci:/scratch/vito/lie:tiny", check=False)
    assert "Tiny 1" in srun(lab, OCI, "cat", "/etc/os-release", user="carol").out


def test_killed_first_task_ends_the_waiting_tasks(lab: Lab, registry: Registry) -> None:
    script = f"""#!/bin/bash
#SBATCH -N1 -o /scratch/alice/first.out
srun -n3 --overlap --overcommit --container-image={registry.host}#team/never:1 true &
until first=$(pgrep -u $USER -fo 'headway/container ste[p]'); do sleep 0.1; done
kill -9 $(ps -o ppid= -p $first)
wait $!; echo ended $?
"""
    with registry.asleep():
        job = lab.sbatch("alice", script=script)
        lab.wait_job(job, "COMPLETED")
    assert "ended" in lab.output("/scratch/alice/first.out")
