"""`headway run` sets the right environment on a node: network interfaces from sysfs, a free port, CPUs near the
GPU."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from programs import rank_launcher as launch


def put(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def hca(root: Path, name: str, layer: str, rate: str = "400 Gb/sec (4X NDR)", driver: str = "mlx5_core") -> None:
    base = root / "class/infiniband" / name
    put(base, **{"ports/1/state": "4: ACTIVE", "ports/1/link_layer": layer, "ports/1/rate": rate})
    (root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
    (base / "device").mkdir()
    (base / "device/driver").symlink_to(root / "drivers" / driver)


def nic(root: Path, name: str, *, device: bool = True, **files: str) -> None:
    base = root / "class/net" / name
    put(base, **{"operstate": "up", "carrier": "1", "type": "1", **files})
    if device:
        (base / "device").mkdir()


def test_infiniband_adapters_exclude_slow_and_down_ports(tmp_path: Path) -> None:
    for number in (0, 1, 10, 2):
        hca(tmp_path, f"mlx5_{number}", "InfiniBand")
    hca(tmp_path, "mlx5_3", "InfiniBand", rate="100 Gb/sec (4X EDR)")
    hca(tmp_path, "mlx5_4", "InfiniBand")
    put(tmp_path, **{"class/infiniband/mlx5_4/ports/1/state": "1: DOWN"})
    hca(tmp_path, "mlx5_bond_0", "Ethernet", rate="100 Gb/sec")
    assert launch.adapters(str(tmp_path)) == {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_10:1"}


def test_roce_uses_the_gid_index_of_roce_v2_over_ipv4(tmp_path: Path) -> None:
    for name in ("mlx5_0", "mlx5_1"):
        hca(tmp_path, name, "Ethernet")
        port = f"class/infiniband/{name}/ports/1"
        gids = ["fe80:0000:0000:0000:0000:0000:0000:0001"] * 2 + ["0000:0000:0000:0000:0000:ffff:0a00:0001"] * 2
        for index, gid in enumerate(gids):
            kind = "RoCE v2" if index % 2 else "IB/RoCE v1"
            put(tmp_path, **{f"{port}/gids/{index}": gid, f"{port}/gid_attrs/types/{index}": kind})
    assert launch.adapters(str(tmp_path)) == {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1", "NCCL_IB_GID_INDEX": "3"}


def test_efa_adapter_selects_the_libfabric_provider(tmp_path: Path) -> None:
    hca(tmp_path, "rdmap0s31", "Unspecified", driver="efa")
    assert launch.adapters(str(tmp_path)) == {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}


def test_ethernet_sets_socket_interface_variables(tmp_path: Path) -> None:
    nic(tmp_path, "lo", device=False)
    nic(tmp_path, "docker0", device=False)
    nic(tmp_path, "eno2", operstate="down")
    nic(tmp_path, "eno1")
    (interface,) = launch.interfaces(str(tmp_path))
    assert interface == "eno1"
    assert launch.network({}, str(tmp_path)) == {"NCCL_SOCKET_IFNAME": "=eno1", "GLOO_SOCKET_IFNAME": "eno1"}


def test_interfaces_prefer_bonds_and_end_with_ip_over_infiniband(tmp_path: Path) -> None:
    nic(tmp_path, "ibs1", type="32")
    nic(tmp_path, "eno1")
    (tmp_path / "class/net/eno1/master").mkdir()
    nic(tmp_path, "bond0", device=False)
    (tmp_path / "class/net/bond0/bonding").mkdir()
    nic(tmp_path, "eno5")
    assert launch.interfaces(str(tmp_path)) == ["bond0", "eno5", "ibs1"]


def test_task_keeps_variables_set_by_the_user(tmp_path: Path) -> None:
    nic(tmp_path, "eno1")
    found = launch.task_variables({"NCCL_SOCKET_IFNAME": "mine", "OMP_NUM_THREADS": "3"}, ["true"], str(tmp_path))
    assert found == {"GLOO_SOCKET_IFNAME": "eno1"}


def test_srun_tasks_get_torch_rank_variables(tmp_path: Path) -> None:
    slurm = {"SLURM_PROCID": "9", "SLURM_NTASKS": "16", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "8(x2)"}
    found = launch.task_variables({**slurm, "HEADWAY_LAUNCHER": "srun"}, ["true"], str(tmp_path))
    assert {name: found[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")} == {
        "RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8",
    }  # fmt: skip
    assert "RANK" not in launch.task_variables({**slurm, "HEADWAY_LAUNCHER": "torchrun"}, ["true"], str(tmp_path))


def test_multi_node_torchrun_logs_quietly_unless_torch_logs_is_set(tmp_path: Path) -> None:
    several = {"HEADWAY_LAUNCHER": "torchrun", "SLURM_JOB_NUM_NODES": "2"}
    found = launch.task_variables(several, ["torchrun"], str(tmp_path))
    assert (found["TORCH_CPP_LOG_LEVEL"], found["TORCH_LOGS"]) == ("ERROR", "-distributed")
    assert "TORCH_LOGS" not in launch.task_variables(
        {**several, "TORCH_LOGS": "+distributed"}, ["torchrun"], str(tmp_path)
    )
    assert not launch.torchrun_log_variables({**several, "SLURM_JOB_NUM_NODES": "1"})
    assert not launch.torchrun_log_variables({**several, "HEADWAY_LAUNCHER": "srun"})


def test_omp_threads_are_divided_among_workers_and_at_least_one() -> None:
    cpus = len(os.sched_getaffinity(0))
    assert launch.threads({}) == {"OMP_NUM_THREADS": str(cpus)}
    assert launch.threads({"HEADWAY_WORKERS": "1000"}) == {"OMP_NUM_THREADS": "1"}


def test_free_port_is_stable_per_job_and_unused() -> None:
    first = launch.free_port(41)
    assert launch.free_port(41) == first
    assert launch.free_port(42) != first
    with socket.socket() as taken:
        taken.bind(("", first))
        taken.listen()
        assert launch.free_port(41) != first


def gpus(root: Path, proc: Path, count: int = 4) -> None:
    put(root, **{"devices/system/cpu/online": "0-63"})
    for minor in range(count):
        address = f"0000:{minor:02x}:00.0"
        put(proc, **{f"driver/nvidia/gpus/{address}/information": f"Model: H100\nDevice Minor: \t {minor}"})
        put(root, **{f"bus/pci/devices/{address}/local_cpulist": "0-31" if minor < count // 2 else "32-63"})


def test_gpu_cpus_are_those_near_the_gpu_of_the_worker(tmp_path: Path) -> None:
    gpus(tmp_path / "sys", tmp_path / "proc")
    places = (str(tmp_path / "sys"), str(tmp_path / "proc"))
    env = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert launch.gpu_cpus("0", env, *places) == set(range(32))
    assert launch.gpu_cpus("3", env, *places) == set(range(32, 64))
    assert launch.gpu_cpus("5", env, *places) == set()
    assert launch.gpu_cpus("3", {"CUDA_VISIBLE_DEVICES": "2"}, *places) == set(range(32, 64))  # one GPU a task
    assert launch.gpu_cpus("0", {}, *places) == set()


def test_gpu_cpus_are_empty_if_all_cpus_are_equally_near(tmp_path: Path) -> None:
    gpus(tmp_path / "sys", tmp_path / "proc", 1)
    put(tmp_path / "sys", **{"bus/pci/devices/0000:00:00.0/local_cpulist": "0-63"})
    assert launch.gpu_cpus("0", {"CUDA_VISIBLE_DEVICES": "0"}, str(tmp_path / "sys"), str(tmp_path / "proc")) == set()


def run(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, launch.__file__, *words], capture_output=True, text=True, timeout=30, check=False, cwd=cwd,
        env={"PATH": os.environ["PATH"], **env},
    )  # fmt: skip


def test_task_executes_its_program_with_unchanged_arguments(tmp_path: Path) -> None:
    done = run("task", "--", "printf", "%s|", "a b", "$HOME", "", MASTER_ADDR="localhost")
    assert (done.returncode, done.stdout) == (0, "a b|$HOME||")


def test_task_executes_the_quoted_command_of_its_step() -> None:
    words = ["printf", "%s|", "a b", "$HOME", "", "it's", "two\nlines\n"]
    quoted = run("quote", *words).stdout.removesuffix("\n")
    done = run("task", MASTER_ADDR="localhost", HEADWAY_COMMAND=quoted)
    assert (done.returncode, done.stdout) == (0, "a b|$HOME||it's|two\nlines\n|")
    assert "HEADWAY_COMMAND" not in run("task", MASTER_ADDR="localhost", HEADWAY_COMMAND="env").stdout


def test_task_reports_a_missing_program_in_one_line() -> None:
    done = run("task", "--", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_job_output_is_valid_shell_and_writes_the_hostfile(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    fake = tmp_path / "scontrol"
    fake.write_text("#!/bin/sh\necho lab-1-1\necho lab-1-2\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = run("job", cwd=folder, PATH=path, SLURM_JOB_NODELIST="lab-1-[1-2]", SLURM_JOB_ID="7", SLURM_GPUS_ON_NODE="8")
    script = done.stdout + 'printf "%s\\n" "$MASTER_ADDR" "$HEADWAY_HOSTFILE"'
    completed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout
    assert completed.splitlines() == ["lab-1-1", str(folder / "hostfile.7")]
    assert (folder / "hostfile.7").read_text() == "lab-1-1 slots=8\nlab-1-2 slots=8\n"


def test_launcher_executes_python_as_the_torchrun_interpreter() -> None:
    done = run("-u", "-c", "import sys; print(sys.argv[1:])", "a b", HEADWAY_PYTHON=sys.executable, LOCAL_RANK="0")
    assert done.stdout == "['a b']\n", done.stderr


def test_torchrun_that_a_venv_lacks_is_the_module_of_its_python(tmp_path: Path) -> None:
    folder = tmp_path / "venv/bin"
    folder.mkdir(parents=True)
    named = ["python3", "warn.py", str(folder / "torchrun"), "--nnodes=2", "train.py"]
    assert launch.with_torchrun(named) == named  # no venv is there
    (folder / "python3").touch()
    found = launch.with_torchrun(named)
    assert found == [*named[:2], str(folder / "python3"), "-m", "torch.distributed.run", *named[3:]]
    assert launch.torchrun_python(found) == str(folder / "python3")
    (folder / "torchrun").write_text(f"#!{folder}/python\n")
    assert launch.with_torchrun(named) == named
    assert launch.torchrun_python(named) == f"{folder}/python"
    assert launch.with_torchrun(["torchrun", "train.py"]) == ["torchrun", "train.py"]


def test_program_of_a_venv_activates_the_venv(tmp_path: Path) -> None:
    folder = tmp_path / "venv/bin"
    folder.mkdir(parents=True)
    argv = [str(folder / "accelerate"), "launch", "train.py"]
    assert launch.venv(argv, {}) == {}  # a folder like any other
    (tmp_path / "venv/pyvenv.cfg").touch()
    found = launch.venv(argv, {"PATH": "/usr/bin"})
    assert found == {"VIRTUAL_ENV": str(tmp_path / "venv"), "PATH": f"{folder}:/usr/bin"}
    assert launch.venv(["/usr/bin/python3", "train.py"], {}) == launch.venv(["python3"], {}) == {}


def test_interpreter_behind_env_is_the_first_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, python = tmp_path / "torchrun", tmp_path / "python3"
    for path in (program, python):
        path.write_text("#!/usr/bin/env python3\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launch.interpreter("torchrun") == str(python)


def test_ray_gets_the_network_and_divides_the_cpus_itself(tmp_path: Path) -> None:
    hca(tmp_path, "mlx5_0", "InfiniBand")
    env = {"HEADWAY_LAUNCHER": "ray", "SLURM_LOCALID": "0", "SLURM_CPUS_ON_NODE": "8", "SLURM_PROCID": "0"}
    assert launch.task_variables(env, ["ray", "start"], str(tmp_path)) == {"NCCL_IB_HCA": "=mlx5_0:1"}


def started_run(program: str, *after: str) -> subprocess.Popen[str]:
    """Starts a shell program as a batch script does, and waits until the program has printed "begun"."""
    argv = [sys.executable, launch.__file__, "run", *after, "--", "bash", "-c", program]
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert started.stdout
    assert started.stdout.readline() == "begun\n"
    return started


def test_run_passes_sigterm_on_and_waits_for_the_program() -> None:
    started = started_run("sleep 600 & trap 'kill $!; echo saved; exit 0' TERM; echo begun; wait")
    os.kill(started.pid, signal.SIGTERM)
    assert started.communicate(timeout=60)[0] == "saved\n"
    assert started.returncode == -signal.SIGTERM, "Slurm must see the end of a script by its signal"


def test_run_ends_by_sigint_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    started = started_run("echo begun; echo $$; exec sleep 600")
    assert started.stdout
    program = int(started.stdout.readline())
    os.kill(started.pid, signal.SIGINT)
    try:
        assert started.wait(timeout=60) == -signal.SIGINT
    finally:
        os.kill(program, signal.SIGKILL)  # as Slurm does when a script has ended
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(("program", "code"), [("echo begun; exit 3", 3), ("echo begun; kill -KILL $$", 137)])
def test_run_ends_with_the_code_of_the_program(program: str, code: int) -> None:
    started = started_run(program)
    started.communicate(timeout=60)
    assert started.returncode == code


@pytest.mark.parametrize(
    ("program", "after", "printed", "code"),
    [
        ("echo begun", "echo recorded", "recorded\n", 0),
        ("echo begun", "echo missing; exit 5", "missing\n", 1),
        ("echo begun; exit 3", "echo recorded", "", 3),
    ],
)
def test_run_records_the_outputs_of_a_program_that_succeeded(program: str, after: str, printed: str, code: int) -> None:
    started = started_run(program, "bash", "-c", after)
    assert started.stdout  # `communicate` with a time limit would lose what was read together with "begun"
    assert (started.stdout.read(), started.wait()) == (printed, code)


def test_program_of_run_has_no_signal_blocked_or_ignored() -> None:
    started = started_run("echo begun; grep -E 'Sig(Blk|Ign)' /proc/self/status; kill -TERM $$")
    masks = {name: int(value, 16) for name, value in map(str.split, started.communicate(timeout=60)[0].splitlines())}
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGPIPE):
        assert not any(mask >> (number - 1) & 1 for mask in masks.values())
    assert started.returncode == 128 + signal.SIGTERM
