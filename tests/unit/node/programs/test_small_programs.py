"""The small programs of node/ print what the server reads."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headway.transport.remote_program import program_source


def run(name: str, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    patient = program_source(name).replace("ANSWER_S = 4.0", "ANSWER_S = 60.0")  # a busy machine answers later
    argv = [sys.executable, "-I", "-S", "-c", patient, *words]
    return subprocess.run(argv, input=stdin, capture_output=True, timeout=60, check=False)


def test_list_job_files_prints_checkpoints_and_images(tmp_path: Path) -> None:
    (tmp_path / "step-10").touch()
    used = tmp_path / "used"
    used.write_text('{"image": "a"}\n7\n')
    document = json.loads(run("list_job_files", str(tmp_path), str(used)).stdout)
    assert document == {"checkpoints": ["step-10", "used"], "used": [{"image": "a"}]}
    absent = str(tmp_path / "absent")
    assert json.loads(run("list_job_files", absent, absent).stdout) == {"checkpoints": [], "used": []}


def test_heartbeat_ages_are_seconds_since_each_heartbeat(tmp_path: Path) -> None:
    beats = tmp_path / "beats.json"
    beats.write_text(json.dumps({"lab-1-1": time.time() - 100}))
    assert 100 <= json.loads(run("heartbeat_ages", str(beats)).stdout)["lab-1-1"] < 200


def test_probe_ssh_tells_an_ssh_server_from_other_servers() -> None:
    for banner, code in ((b"SSH-2.0-x", 0), (b"HTTP/1.1", 1)):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def answer(server: socket.socket = server, banner: bytes = banner) -> None:
                server.accept()[0].sendall(banner)

            threading.Thread(target=answer, daemon=True).start()
            assert run("probe_ssh", "127.0.0.1", str(server.getsockname()[1])).returncode == code


@pytest.mark.parametrize("kind", [socket.AF_UNIX, socket.AF_INET])
def test_socket_bridge_copies_both_ways(tmp_path: Path, kind: socket.AddressFamily) -> None:
    with socket.socket(kind) as server:
        server.bind(str(tmp_path / "s") if kind == socket.AF_UNIX else ("127.0.0.1", 0))
        server.listen()
        goal = str(server.getsockname() if kind == socket.AF_UNIX else server.getsockname()[1])

        def echo() -> None:
            link = server.accept()[0]
            data = b""
            while piece := link.recv(65536):
                data += piece
            link.sendall(data.upper())
            link.close()

        threading.Thread(target=echo, daemon=True).start()
        assert run("socket_bridge", goal, stdin=b"words").stdout == b"WORDS"
