"""The parts of the Ray launcher: which ray, ports, memory and folder it takes."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from programs import ray_cluster


def test_missing_and_old_ray_are_refused_with_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    assert ray_cluster.find_ray(["python", "tune.py"], {"PATH": str(tmp_path / "bin")}) is None
    assert "name the Python of a venv that has it" in capsys.readouterr().err
    (tmp_path / "bin/ray").write_text("")
    monkeypatch.setattr(ray_cluster, "ray_version", lambda ray: (2, 51))
    assert ray_cluster.find_ray([f"{tmp_path}/bin/python"], {}) is None
    assert "Ray 2.51 on " in capsys.readouterr().err
    monkeypatch.setattr(ray_cluster, "ray_version", lambda ray: (2, 52))
    assert ray_cluster.find_ray([f"{tmp_path}/bin/python"], {}) == f"{tmp_path}/bin/ray"


def test_two_jobs_have_different_ports_and_taken_ones_are_left_out() -> None:
    ports = ray_cluster.free_ports(12)
    assert len({*ports.values()}) == len(ports)
    with socket.create_server(("", ports["gcs"])):
        again = ray_cluster.free_ports(12)
    assert ports["gcs"] not in again.values()
    assert not {*ray_cluster.free_ports(13).values()} & {*ports.values()}


def test_memory_is_the_limit_of_the_cgroup(tmp_path: Path) -> None:
    old, new = tmp_path / "memory/job", tmp_path / "job/step"
    old.mkdir(parents=True)
    new.mkdir(parents=True)
    (old / "memory.stat").write_text("cache 1\nhierarchical_memory_limit 4096\n")
    (new / "memory.max").write_text("max\n")
    (new.parent / "memory.max").write_text("8192\n")
    own = tmp_path / "own"
    for lines, limit in (("4:memory:/job\n0::/other\n", 4096), ("0::/job/step\n", 8192), ("0::/\n", 0)):
        own.write_text(lines)
        assert ray_cluster.memory_limit(str(tmp_path), str(own)) == limit


def test_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    env = {"SLURM_JOB_ID": "7", "HEADWAY_SCRATCH": str(tmp_path)}
    path = Path(ray_cluster.private_folder(env))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (path / "old").touch()
    assert not list(Path(ray_cluster.private_folder(env)).iterdir())
    path.rmdir()
    path.symlink_to(tmp_path)
    with pytest.raises(FileExistsError):
        ray_cluster.private_folder(env)


def test_sockets_of_ray_fit_into_their_paths() -> None:
    longest = "/tmp/ray-4294967295-99/session_2026-11-29_03-01-47_170692_4194304/sockets/plasma_store.10"
    assert len(longest) <= 107


def test_warning_signal_reaches_the_command_only() -> None:
    ask = "import signal; print(signal.getsignal(signal.SIGUSR1).name)"
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        kinds = [
            subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, timeout=60,
                           preexec_fn=act).stdout for act in (None, ray_cluster.take_signals)
        ]  # fmt: skip
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert kinds == ["SIG_IGN\n", "SIG_DFL\n"]
