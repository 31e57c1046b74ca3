"""The container flags that Pyxis users know work on a real cluster and with a real registry."""

from __future__ import annotations

import json
import re

import pytest
from tests.cluster.containers import container_registry as registries
from tests.cluster.containers.container_images import OCI, images, no_node_is_drained, printed, put, registry, srun
from tests.cluster.containers.container_registry import Registry
from tests.cluster.lab import Lab

__all__ = ["images", "no_node_is_drained", "registry"]  # fixtures


# ---- images


@pytest.mark.core
def test_image_is_imported_once_for_all_tasks_and_cached(lab: Lab, registry: Registry) -> None:
    lab.head("rm", "-rf", "/scratch/alice/.containers")
    image = f"--container-image={registry.host}#team/tiny:1"
    first = srun(lab, "-N4", "-n8", image, "cat", "/etc/os-release")
    assert first.out.count("Tiny 1") == 8
    assert first.err.count("imported") == 1
    noted = lab.head("bash", "-c", "cat /scratch/alice/.containers/.used-*", user="alice").out
    assert json.loads(noted)["image"] == f"{registry.host}#team/tiny:1"
    assert re.search(r"sha256-[0-9a-f]{64}\.sqsh$", json.loads(noted)["file"])
    again = srun(lab, "-N2", image, "cat", "/etc/os-release")
    assert again.out.count("Tiny 1") == 2
    assert "import" not in again.err
    assert registry.asked("GET /v2/team/tiny/blobs/", "skopeo") == 2  # the image's configuration and its one layer


@pytest.mark.parametrize("form", ["docker://{0}/team/tiny:1", "docker://{0}#team/tiny:1", "reader@{0}#team/tiny:1"])
def test_image_name_forms_share_one_import(lab: Lab, registry: Registry, form: str) -> None:
    srun(lab, f"--container-image={registry.host}#team/tiny:1", "true")
    if form.startswith("reader@"):
        put(
            lab, "alice", "/home/alice/.config/enroot/.credentials",
            f"machine other.example login x password y\nmachine {registry.host} login reader password $SECRET\n",
        )  # fmt: skip
    done = lab.head(
        "env", f"SECRET={registry.password}", "srun", f"--container-image={form.format(registry.host)}",
        "cat", "/etc/os-release", user="alice",
    )  # fmt: skip
    lab.head("rm", "-f", "/home/alice/.config/enroot/.credentials")
    assert "Tiny 1" in done.out
    assert "import" not in done.err


@pytest.mark.core
@pytest.mark.parametrize("image", ["oci:/scratch/vito/oci:tiny", "/scratch/vito/tiny.sqsh", "/scratch/vito/links.oci"])
def test_container_starts_from_oci_layouts_and_squashfs_files(lab: Lab, images: None, image: str) -> None:
    """Also for an image whose files belong to root: in the container they belong to the user, who can write them."""
    mounts = ["--container-mounts=/usr:/usr:ro"] if "links" in image else []
    done = srun(
        lab, f"--container-image={image}", *mounts, "bash", "-c",
        "ls -ld /etc/passwd >/dev/null; echo changed > /etc/new && cat /etc/new; grep alice /etc/passwd",
    )  # fmt: skip
    assert done.out.splitlines()[0] == "changed"
    assert "/home/alice" in done.out


def test_image_cache_is_private_to_its_user(lab: Lab, images: None) -> None:
    srun(lab, OCI, "true")
    assert lab.head("stat", "-c", "%a %U", "/scratch/alice/.containers").out.split() == ["700", "alice"]
    digest = lab.head("bash", "-c", "cd /scratch/alice/.containers; ls -t *.sqsh | head -1").out.strip()
    lab.head("rm", "-rf", "/scratch/.containers")
    # Another user's folder in place of the administrators' folder is not used, even with the right digest in its names.
    lab.head("bash", "-c", f"mkdir -p /scratch/.containers && echo hsqs > /scratch/.containers/{digest}", user="vera")
    try:
        done = srun(lab, OCI, "cat", "/etc/os-release", user="sam", check=False)
        assert "Tiny 1" in done.out, done.err
    finally:
        lab.head("rm", "-rf", "/scratch/.containers")


def test_image_imported_by_an_admin_serves_all_users(lab: Lab, images: None) -> None:
    lab.head("bash", "-c", "rm -rf /scratch/.containers /scratch/victor/.containers")
    path = lab.cli("container", "import", "lab", "oci:/scratch/vito/oci:tiny", "-o", "json").json()["path"]
    assert lab.head("stat", "-c", "%U %a", path).out.split() == ["root", "644"]
    done = srun(lab, OCI, "bash", "-c", "cat /etc/os-release; touch /etc/os-release && echo writable", user="victor")
    assert "Tiny 1" in done.out
    assert "writable" in done.out
    assert "import" not in done.err
    digest = lab.cli("container", "ls", "lab", "-o", "json").json()[0]["digest"]
    lab.cli("container", "rm", "lab", digest)
    assert "no shared container image" in lab.cli("container", "ls", "lab").out
    lost = lab.cli("container", "import", "lab", "oci:/scratch/vito/lost:tiny", check=False)
    assert lost.code != 0
    assert "there is no image /scratch/vito/lost" in lost.err


# ---- flags


def test_container_mounts_follow_pyxis_syntax(lab: Lab, images: None) -> None:
    lab.head("bash", "-c", "mkdir -p /scratch/alice/m && echo there > /scratch/alice/m/file", user="alice")
    mounts = (
        "/scratch/alice/m:/read:ro,/scratch/alice/m:/write,/scratch/alice/m/file:/etc/one,/dev/null:/nothing,"
        "/scratch/alice/m:/etc/leads-away/deep,./m:/relative,/scratch/alice/m:../up,/scratch/alice"
    )
    done = srun(
        lab, "--chdir=/scratch/alice", OCI, f"--container-mounts={mounts}", "bash", "-c",
        "cat /read/file /etc/one /data/deep/file /relative/file /up/file /scratch/alice/m/file; touch /read/no;"
        "touch /write/yes; test -c /nothing && echo device",
    )  # fmt: skip
    assert done.out.split() == ["there"] * 6 + ["device"]
    assert "Read-only file system" in done.err
    lab.head("test", "-e", "/scratch/alice/m/yes")


def test_home_is_mounted_only_on_request(lab: Lab, images: None) -> None:
    lab.head("touch", "/home/alice/mine", user="alice")
    look = ["bash", "-c", "echo $HOME; ls $HOME"]
    assert srun(lab, OCI, "--container-mount-home", *look).out.split()[0] == "/home/alice"
    assert "mine" in srun(lab, OCI, "--container-mount-home", *look).out
    assert srun(lab, OCI, *look).out == srun(lab, OCI, "--no-container-mount-home", *look).out == "/home/alice\n"


def test_pyxis_flags_change_user_environment_and_files(lab: Lab, images: None) -> None:
    assert "[pyxis]" in lab.head("srun", "--help", user="alice").out
    said = lab.head(
        "env",
        "GREETING=host",
        "srun",
        OCI,
        "--container-env=MINE,GREETING",
        "bash",
        "-c",
        "echo $GREETING",
        user="alice",
    )
    assert said.out == "host\n"
    locked = srun(
        lab, OCI, "--container-readonly", "bash", "-c", "touch /tmp/mine && echo tmp; touch /data/no", check=False
    )
    assert (locked.out, "Read-only file system" in locked.err) == ("tmp\n", True)
    root = srun(lab, OCI, "--container-remap-root", "--no-container-entrypoint", "--container-writable", "id", "-u")
    assert root.out == "0\n"
    saved = srun(lab, OCI, "--container-save=/scratch/alice/x.sqsh", "true", check=False)
    assert "--container-save is not supported" in saved.err


def test_oci_bundle_runs_with_the_gpus_of_its_job(lab: Lab, images: None) -> None:
    bundle = "--container=/scratch/vito/bundle"
    assert lab.head("srun", bundle, "grep", "PRETTY", "/etc/os-release", user="vito").out == 'PRETTY_NAME="Tiny 1"\n'
    look = "nvidia-smi -L; [ -e /dev/nvidia0 ] && echo device"
    shown = lab.head("srun", "--gpus=2", bundle, "bash", "-c", look, user="vito").out
    assert (shown.count("GPU "), "device" in shown) == (2, True)
    assert lab.head("srun", bundle, "bash", "-c", "exit 3", user="vito", check=False).code == 3


def test_container_uses_working_folder_and_environment_of_its_image(lab: Lab, images: None) -> None:
    done = lab.head(
        "env", "MINE=kept", "GREETING=host", "srun", OCI, "bash", "-c",
        "pwd; echo $GREETING $MINE $SLURM_NTASKS $HOME $PATH; id -un", user="alice",
    ).out.split("\n")  # fmt: skip
    assert done[:3] == ["/opt/app", "hello kept 1 /home/alice /usr/bin:/bin", "alice"]
    assert srun(lab, OCI, "--container-workdir=/etc", "pwd").out == "/etc\n"
    lost = srun(lab, OCI, "--container-workdir=/lost", "pwd", check=False)
    assert lost.code != 0
    assert "/lost" in lost.err


def test_named_container_keeps_its_files_for_the_job(lab: Lab, images: None) -> None:
    script = f"""#!/bin/bash
#SBATCH -N2 -o /scratch/viola/named.out
srun {OCI} --container-name=kept bash -c 'echo $SLURM_NODEID > /written'
srun --container-name=kept cat /written
srun {OCI} bash -c 'test -e /written || echo clean'
# Slurm may say for a moment that the memory of the step before is not free yet: steps that may overlap don't wait for it.
(until srun --container-name=kept --overlap sleep 3600; do sleep 0.1; done) 2>/dev/null &
until srun --overlap --container-name=kept -N1 -w $SLURMD_NODENAME test -e /written; do sleep 0.1; done 2>/dev/null
until srun --overlap --container-name=kept -N1 bash -c 'echo into; cat /written'; do sleep 0.1; done 2>/dev/null
kill %1; wait
"""
    job = lab.sbatch("viola", script=script)
    assert lab.wait_job(job) == "COMPLETED"
    output = printed(lab, "/scratch/viola/named.out")
    assert sorted(output[:2]) == ["0", "1"]
    assert output[2:5] == ["clean", "clean", "into"]
    assert output[5] in output[:2]
    other = srun(lab, "--container-name=kept", "true", user="viola", check=False)
    assert other.code != 0
    assert "--container-image" in other.err
    # Nothing of a job stays on its nodes. Elsewhere a folder may have the same number: a version of gcc, a session of logind.
    look = f"find /run /var /tmp /dev/shm -maxdepth 5 -name {job} -not -path '/run/systemd/*' 2>/dev/null || true"
    for node in ("lab-1-1", "lab-1-2"):
        assert lab.podman("exec", lab.container(node), "sh", "-c", look) == ""


def test_batch_script_runs_in_its_container(lab: Lab, images: None) -> None:
    script = f"""#!/bin/bash
#SBATCH {OCI}
#SBATCH --container-workdir=/etc
#SBATCH -o /scratch/vera/batch.out
pwd
cat os-release
echo "$@"
"""
    job = lab.sbatch("vera", "--container-mounts=/scratch/vera:/work", script=script)
    assert lab.wait_job(job) == "COMPLETED"
    assert printed(lab, "/scratch/vera/batch.out") == ["/etc", 'PRETTY_NAME="Tiny 1"', ""]
    wrong = lab.sbatch(
        "vera", "--container-image=/scratch/vito/lost.sqsh", "-o", "/scratch/vera/lost.out", script=script
    )
    assert lab.wait_job(wrong) == "FAILED"
    assert "there is no image /scratch/vito/lost.sqsh" in lab.output("/scratch/vera/lost.out")


def test_salloc_steps_run_in_its_container(lab: Lab, images: None) -> None:
    done = lab.head("salloc", "-N2", OCI, "srun", "cat", "/etc/os-release", user="vera")
    assert done.out.count("Tiny 1") == 2


def test_container_example_script_runs(lab: Lab, images: None) -> None:
    text = (registries.ROOT / "examples/container.sbatch").read_text()
    put(lab, "vera", "/scratch/vera/example/container.sbatch", text)
    where = [
        "--chdir=/scratch/vera/example",
        "-o",
        "/scratch/vera/example/out",
        "/scratch/vera/example/container.sbatch",
    ]
    job = lab.sbatch("vera", *where, "oci:/scratch/vito/oci:tiny")
    assert lab.wait_job(job) == "COMPLETED"
    output = printed(lab, "/scratch/vera/example/out")
    assert sorted(line for line in output if line.startswith("prepared")) == [
        "prepared on node 0",
        "prepared on node 1",
    ]
    assert sum("SIMULATED" in line or line.startswith("GPU 0") for line in output) == 2
    assert output.count("container.sbatch") == 2


# ---- inside


@pytest.mark.core
def test_container_sees_only_the_gpus_of_its_job(lab: Lab, images: None) -> None:
    done = srun(
        lab, "--gpus=2", OCI, "bash", "-c", "nvidia-smi -L; cat /dev/nvidia?; echo $CUDA_VISIBLE_DEVICES", check=False
    )
    assert [line.split(":")[0] for line in done.out.splitlines() if line.startswith("GPU ")] == ["GPU 0", "GPU 1"]
    assert done.err.count("Operation not permitted") == 6
    assert "0,1" in done.out
    assert "SIMULATED" in srun(lab, "--gpus=1", OCI, "nvidia-smi").out
    assert srun(lab, OCI, "nvidia-smi", check=False).code != 0


def test_container_has_the_limits_memory_and_network_of_its_job(lab: Lab, images: None) -> None:
    look = "test -w /dev/shm && test -w /tmp && grep -c lab- /etc/hosts; findmnt -n -o FSTYPE /sys/fs/cgroup | head -1"
    assert srun(lab, OCI, "bash", "-c", look).out.split()[0] == "5"
    eat = "x=; while :; do x=$x$(head -c 20000000 /dev/zero | sha256sum)$x; done"
    done = srun(lab, "--mem=120", OCI, "bash", "-c", eat, check=False)
    assert done.code != 0
    assert re.search("oom|Out Of Memory|Killed", done.err, re.IGNORECASE), done.err


def test_mpi_and_torch_run_in_containers_over_two_nodes(lab: Lab, images: None) -> None:
    system = [
        "--container-image=/scratch/vito/links.oci",
        "--container-mounts=/usr:/usr:ro,/etc/alternatives:/etc/alternatives",
    ]
    source = """#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) { int rank, sum; MPI_Init(&argc, &argv); MPI_Comm_rank(MPI_COMM_WORLD, &rank); rank++;
MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); printf("sum %d\\n", sum); MPI_Finalize(); }
"""
    put(lab, "alice", "/scratch/alice/mpi/sum.c", source)
    lab.head("mpicc", "-o", "/scratch/alice/mpi/sum", "/scratch/alice/mpi/sum.c", user="alice")
    system[1] += ",/scratch/alice"
    done = srun(lab, "--mpi=pmix", "-N2", "-n4", *system, "/scratch/alice/mpi/sum")
    assert done.out.split("\n").count("sum 10") == 4
    ddp = """import os, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method=f"tcp://{os.environ['FIRST']}:29411", rank=int(os.environ["SLURM_PROCID"]),
    world_size=2)
x = torch.ones(1); dist.all_reduce(x); print("all", int(x))
"""
    put(lab, "alice", "/scratch/alice/mpi/ddp.py", ddp)
    run = f"FIRST=$(scontrol show hostnames | head -1) srun {' '.join(system)} python3 /scratch/alice/mpi/ddp.py"
    done = lab.head(
        "salloc", "-N2", "bash", "-c", f"export {run.split(' srun')[0]}; srun{run.split(' srun')[1]}", user="alice"
    )
    assert done.out.split("\n").count("all 2") == 2
