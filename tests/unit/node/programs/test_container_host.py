"""The program on hosts that run a machine in a container: an image that arrives incomplete is never used, and missing
space is told before anything is copied."""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from headway.domain.network_policy import Network, NetworkPolicy
from headway.paths import node_dir
from headway.render.files_by_role import render_files
from tests.support.clusters.render_cases import own_gpu_cluster, own_gpu_site

FOLDER = "/var/lib/headway/machine"


def run(base: Path, *argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    script = base.parent / "host.sh"
    script.write_text(
        (node_dir() / "programs" / "owned_machines" / "container_host.sh").read_text().replace(FOLDER, str(base))
    )
    return subprocess.run(["sh", str(script), *argv], input=stdin, capture_output=True, timeout=60, check=False)


def image(*, init: bool = True) -> bytes:
    files = {
        "etc/openmpi/openmpi-mca-params.conf": b"mpi_yield_when_idle = 1\npml = ucx\n",
        "usr/lib/headway/x": b"x" * 9000,
    }
    if init:
        files["usr/sbin/init"] = b"#!/bin/sh\n"
    return gzip.compress(tar(files))


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as packed:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            packed.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def test_complete_image_is_unpacked_without_settings_for_shared_cpus(tmp_path: Path) -> None:
    base = tmp_path / "machine"
    base.mkdir()
    done = run(base, "receive", "abc", stdin=image())
    assert done.returncode == 0, done.stderr
    assert (base / "next/usr/lib/headway/image-id").read_text() == "abc\n"
    assert (base / "next/etc/openmpi/openmpi-mca-params.conf").read_text() == "pml = ucx\n"


@pytest.mark.parametrize("arrived", [image()[:-40], image(init=False), b""], ids=["cut off", "without init", "nothing"])
def test_incomplete_image_is_not_used(tmp_path: Path, arrived: bytes) -> None:
    base = tmp_path / "machine"
    base.mkdir()
    assert run(base, "receive", "abc", stdin=arrived).returncode != 0
    assert list(base.iterdir()) == []


def test_missing_space_is_told_in_one_sentence(tmp_path: Path) -> None:
    done = run(tmp_path / "machine", "room", "999999999")
    assert done.returncode == 1
    assert done.stderr.startswith(f"{tmp_path}/machine has ".encode())
    assert done.stderr.endswith(b" MiB of free disk space, and a copy of the node image needs 999999999 MiB\n")


@pytest.mark.parametrize("runtime", ["", "docker", "podman systemd-nspawn"])
def test_machine_starts_with_podman_or_systemd_nspawn_only(tmp_path: Path, runtime: str) -> None:
    base = tmp_path / "machine"
    base.mkdir()
    done = run(base, "up", "abc", "lab-1-1", runtime)
    assert (done.returncode, done.stderr.decode()) == (
        1,
        f"no runtime for containers is called '{runtime}': podman or systemd-nspawn\n",
    )
    assert list(base.iterdir()) == [], "nothing was done"


def test_machine_does_not_wait_for_the_deletion_of_its_former_image(tmp_path: Path) -> None:
    base, units = tmp_path / "machine", tmp_path / "units"
    units.mkdir()
    for folder, image in (("root", "old"), ("next", "new")):
        (base / folder / "usr/lib/headway").mkdir(parents=True)
        (base / folder / "etc").mkdir()
        (base / folder / "usr/lib/headway/image-id").write_text(f"{image}\n")
    (base / "image").write_text("old\n")
    text = (node_dir() / "programs" / "owned_machines" / "container_host.sh").read_text().replace(FOLDER, str(base))
    text = text.replace("/etc/systemd/system", str(units)).replace("systemd-run", "systemd_run")
    functions = f"""systemctl() {{ [ "${{2:-}}" != is-active ] || return 3; echo "$*: $(ls -x {base})"; }}
systemd_run() {{ echo "run $4 $5 $6: begins"; }}
"""
    text = text.replace("set -eu\n", f"set -eu\n{functions}", 1)
    argv = ["sh", "-c", text, "host.sh", "up", "new", "lab-1-1", "podman", str(tmp_path / "home")]
    done = subprocess.run(argv, input=tar({}), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    seen = dict(line.split(": ", 1) for line in done.stdout.decode().splitlines())
    assert seen["stop headway-machine.service"].split() == ["files.tar", "image", "next", "root"]
    assert seen["start headway-machine.service"].split() == ["image", "old", "root", "settings"]
    assert list(seen)[-1] == f"run rm -rf {base}/old"
    assert (base / "root/usr/lib/headway/image-id").read_text() == "new\n"


@pytest.mark.parametrize("active", [True, False])
def test_repeated_start_leaves_a_running_deletion_alone(tmp_path: Path, active: bool) -> None:
    base, units = tmp_path / "machine", tmp_path / "units"
    units.mkdir()
    (base / "root/etc").mkdir(parents=True)
    (base / "old").mkdir()
    (base / "image").write_text("new\n")
    text = (node_dir() / "programs" / "owned_machines" / "container_host.sh").read_text().replace(FOLDER, str(base))
    text = text.replace("/etc/systemd/system", str(units)).replace("systemd-run", "systemd_run")
    functions = f"""systemctl() {{ [ "${{2:-}}" != is-active ] || return {0 if active else 3}; echo "$*"; }}
systemd_run() {{ echo "begins: $*"; }}
"""
    text = text.replace("set -eu\n", f"set -eu\n{functions}", 1)
    argv = ["sh", "-c", text, "host.sh", "up", "new", "lab-1-1", "podman", str(tmp_path / "home")]
    done = subprocess.run(argv, input=tar({}), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert b"stop headway-machine-deletion.service" not in done.stdout
    assert (base / "old").exists()
    assert (b"begins: --quiet --collect" in done.stdout) is not active


def call(tmp_path: Path, functions: str, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs the program with shell functions in place of the host's programs."""
    base, units = tmp_path / "machine", tmp_path / "units"
    text = (node_dir() / "programs" / "owned_machines" / "container_host.sh").read_text().replace(FOLDER, str(base))
    text = text.replace("/etc/systemd/system", str(units)).replace("systemd-run", "systemd_run")
    text = text.replace("set -eu\n", f"set -eu\n{functions}\n", 1)
    command = ["sh", "-c", text, "host.sh", *argv]
    return subprocess.run(
        command,
        input=tar({}).decode(),
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
        env={**os.environ, **env},
    )


def test_container_that_does_not_start_is_told_by_its_runtimes_error(tmp_path: Path) -> None:
    (tmp_path / "machine/root/etc").mkdir(parents=True)
    (tmp_path / "units").mkdir()
    (tmp_path / "machine/image").write_text("new\n")
    functions = """systemctl() { [ "$1" != start ] || { echo "Job for $2 failed." >&2; return 1; }; echo "$*"; }
journalctl() { printf '%s\\n' 'Started' 'Error: runc: pids.max: no such file' 'Main process exited, code=exited'; }"""
    done = call(tmp_path, functions, "up", "new", "lab-1-1", "podman", str(tmp_path / "home"))
    assert (done.returncode, done.stderr) == (1, "Error: runc: pids.max: no such file\n")
    assert "reset-failed headway-machine.service" in done.stdout, "an earlier one may have failed too often"


@pytest.mark.parametrize(("states", "code"), [("created running", 0), ("created exited", 1)])
def test_start_with_podman_is_complete_when_the_container_runs(tmp_path: Path, states: str, code: int) -> None:
    """Otherwise an apply would wait for SSH of a machine that does not run."""
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine/settings").write_text("name=lab-1-1\nruntime=podman\n")
    (tmp_path / "states").write_text(states.replace(" ", "\n"))
    functions = f"""sleep() {{ :; }}
podman() {{ sed -n 1p {tmp_path}/states; sed -i 1d {tmp_path}/states; }}
kill() {{ grep -q . {tmp_path}/states; }}"""
    done = call(tmp_path, functions, "started", MAINPID="12")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_host_without_a_machine_has_no_image(tmp_path: Path) -> None:
    done = run(tmp_path / "machine", "image")
    assert (done.returncode, done.stdout) == (0, b"")


def test_driver_of_the_host_is_copied_into_the_machine(tmp_path: Path) -> None:
    """By the name that programs load, and also by the full version, which the driver itself loads."""
    libraries, root = tmp_path / "lib", tmp_path / "root"
    for folder in (libraries, root / "etc/ld.so.conf.d", root / "usr/bin"):
        folder.mkdir(parents=True)
    (libraries / "libcuda.so.570.1").write_text("driver")
    (libraries / "libcuda.so.1").symlink_to("libcuda.so.570.1")
    (libraries / "nvidia-smi").write_text("smi")
    (root / "usr/bin/nvidia-smi").write_text("simulated")
    listed = f"\tlibcuda.so.1 (libc6,x86-64) => {libraries}/libcuda.so.1\n\tlibc.so.6 (libc6,x86-64) => /lib/libc.so.6"
    script = f"""set -eu
root={root}
have() {{ [ "$1" = nvidia-smi ]; }}
ldconfig() {{ printf '%s\\n' '{listed}'; }}
chroot() {{ echo "chroot $*"; }}
command() {{ echo {libraries}/nvidia-smi; }}
{function("copy_driver")}
copy_driver
"""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"chroot {root} ldconfig\n"), done.stderr
    copied = root / "usr/lib/headway/driver"
    assert sorted(path.name for path in copied.iterdir()) == ["libcuda.so.1", "libcuda.so.570.1"]
    assert (copied / "libcuda.so.570.1").read_text() == "driver"
    assert (root / "usr/bin/nvidia-smi").read_text() == "smi"
    assert (root / "etc/ld.so.conf.d/00-headway-driver.conf").read_text() == "/usr/lib/headway/driver\n"


@pytest.mark.parametrize("installed", [True, False])
def test_machine_has_nccl_and_dcgms_client_while_its_host_has_them(tmp_path: Path, installed: bool) -> None:
    """Without them the all-reduce, the fabric test and NVIDIA's diagnostic would always be skipped in a container."""
    libraries, root = tmp_path / "lib", tmp_path / "root"
    for folder in (libraries, root / "etc/ld.so.conf.d", root / "usr/bin"):
        folder.mkdir(parents=True)
    (root / "usr/bin/dcgmi").write_text("of an earlier start")
    names = ["libnccl.so.2", "libdcgm.so.4"] if installed else []
    for name in [*names, "dcgmi"]:
        (libraries / name).write_text(name)
    listed = "\n".join(f"\t{name} (libc6,x86-64) => {libraries}/{name}" for name in names)
    script = f"""set -eu
root={root}
have() {{ [ "$1" = dcgmi ] && {"true" if installed else "false"}; }}
ldconfig() {{ printf '%s\\n' '{listed}'; }}
chroot() {{ :; }}
command() {{ echo {libraries}/dcgmi; }}
{function("copy_driver")}
copy_driver
"""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (root / "usr/lib/headway/driver").iterdir()} == set(names)
    program = root / "usr/bin/dcgmi"
    assert (program.read_text() if program.exists() else "") == ("dcgmi" if installed else "")


def function(name: str) -> str:
    text = (node_dir() / "programs" / "owned_machines" / "container_host.sh").read_text()
    return f"{name}() {{" + text.split(f"\n{name}() {{")[1].split("\n}\n")[0] + "\n}"


def test_machine_shares_the_folders_of_the_host_except_those_of_its_system(tmp_path: Path) -> None:
    for name in (
        "home",
        "scratch",
        "mnt",
        "data",
        "etc",
        "usr",
        "lib64",
        "var",
        "proc",
        "run",
        "my data",
        "lost+found",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / "bin").symlink_to("usr")
    text = function("shared_folders").replace("for folder in /*", 'for folder in "$top"/*')
    text = text.replace('[ -d "$folder" ]', 'found=$folder folder=${folder#"$top"}; [ -d "$found" ]')
    text = text.replace('[ ! -L "$folder" ]', '[ ! -L "$found" ]')
    argv = ["sh", "-c", f"top={tmp_path}\n{text}\nshared_folders"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["/data", "/home", "/mnt", "/scratch"], done.stderr


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("runtime", ["podman", "systemd-nspawn"])
def test_machine_can_read_the_modules_of_its_hosts_kernel(tmp_path: Path, runtime: str, secure: bool) -> None:
    """By them, and by the host's Secure Boot, the agent says why the driver does not work."""
    marks = tmp_path / "machine/root/usr/lib/headway"
    for folder in (tmp_path / "modules", tmp_path / "efi", marks):
        folder.mkdir(parents=True)
    (tmp_path / "efi/SecureBoot-8be4df61").write_bytes(b"\6\0\0\0" + bytes([secure]))
    (marks / "secure-boot").touch()  # of an earlier start
    (tmp_path / "machine/settings").write_text(f"name=lab-1-1\nruntime={runtime}\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("podman", "systemd-nspawn"):
        (programs / name).write_text('#!/bin/sh\necho "$*"\n')
        (programs / name).chmod(0o755)
    text = (
        (node_dir() / "programs" / "owned_machines" / "container_host.sh")
        .read_text()
        .replace(FOLDER, str(tmp_path / "machine"))
    )
    text = text.replace("PATH=", f"PATH={programs}:", 1).replace("/lib/modules", str(tmp_path / "modules"))
    text = text.replace("/sys/firmware/efi/efivars", str(tmp_path / "efi"))
    done = subprocess.run(
        ["sh", "-c", text, "host.sh", "start"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    folder = f"{tmp_path}/modules"
    wanted = f"--volume {folder}:{folder}:ro" if runtime == "podman" else f"--bind-ro={folder}"
    assert wanted in done.stdout
    assert (marks / "secure-boot").exists() is secure


def test_all_nftables_of_a_machine_are_deleted_from_its_host(tmp_path: Path) -> None:
    """A killed machine deletes none, and its tables lie in the network namespace of the host."""
    base, bin_ = tmp_path / "machine", tmp_path / "machine/root/usr/sbin"
    bin_.mkdir(parents=True)
    (bin_ / "nft").write_text("#!/bin/sh\n")
    (bin_ / "nft").chmod(0o755)
    text = (node_dir() / "programs" / "owned_machines" / "container_host.sh").read_text().replace(FOLDER, str(base))
    block = text[text.index("    # The machine's tables of nftables") : text.index('    rm -f "$unit_file"')]
    script = f"root={base}/root\nchroot() {{ echo $*; }}\n{block}"
    deleted = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=True).stdout
    cluster = replace(own_gpu_cluster(), network=Network(NetworkPolicy(job_ports="user")))
    files = render_files(cluster, own_gpu_site())
    rules = "".join(file.text for role in files.values() for path, file in role.items() if path.endswith(".nft"))
    tables = set(re.findall(r"^delete table inet (\w+)$", rules, re.MULTILINE))
    assert len(tables) == 3
    assert set(re.findall(r"nft delete table inet (\w+)$", deleted, re.MULTILINE)) == tables
