"""The take-back program delays the first head's slurmctld until the second head's controller has stopped; run with a
temporary state folder and a fake scontrol."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headway.domain.cluster import SLURM_STATE_FOLDER
from headway.render.ha import single_active_head, takeover_settings
from headway.render.system.unit_list import units_by_role
from tests.support.clusters import builders


@pytest.fixture
def other() -> Iterator[socket.socket]:
    """The second head's slurmctld, listening."""
    ears = socket.create_server(("127.0.0.1", 0))
    yield ears
    ears.close()


def program(folder: Path, port: int) -> Path:
    cluster = replace(builders.cluster(), controllers=2)
    text = single_active_head.files(cluster, first=True)[single_active_head.PROGRAM].text
    for old, new in (
        (SLURM_STATE_FOLDER, str(folder)),
        (
            f"PORT, HEARTBEAT = ['{cluster.heads[1]}'], {single_active_head.PORT}",
            f"PORT, HEARTBEAT = ['127.0.0.1'], {port}",
        ),
    ):
        assert old in text
        text = text.replace(old, new)
    made = folder / "take-back"
    made.write_text(text)
    scontrol = folder / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >>{folder}/told\n')
    scontrol.chmod(0o755)
    return made


def beat(folder: Path, number: int, age_s: float = 0) -> None:
    (folder / "heartbeat").write_bytes(struct.pack(">QQ", int(time.time() - age_s), number))


def start(made: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-IS", str(made)], env={"PATH": f"{made.parent}:{os.environ['PATH']}"})


def test_single_head_cluster_has_no_failback_files() -> None:
    assert single_active_head.files(builders.cluster(), first=True) == {}


@pytest.mark.parametrize(("number", "age_s"), [(0, 0), (1, 60)])
def test_first_head_starts_when_second_does_not_lead(
    tmp_path: Path, other: socket.socket, number: int, age_s: float
) -> None:
    beat(tmp_path, number, age_s)
    assert start(program(tmp_path, other.getsockname()[1])).wait(timeout=30) == 0
    assert not (tmp_path / "told").exists()


def test_first_head_starts_without_heartbeat(tmp_path: Path, other: socket.socket) -> None:
    assert start(program(tmp_path, other.getsockname()[1])).wait(timeout=30) == 0


def test_leading_second_head_is_shut_down_and_awaited(tmp_path: Path, other: socket.socket) -> None:
    beat(tmp_path, 1)
    told = tmp_path / "told"
    ran = start(program(tmp_path, other.getsockname()[1]))
    while not told.exists():
        assert ran.poll() is None
        time.sleep(0.01)
    threading.Timer(0.2, other.close).start()
    assert ran.wait(timeout=30) == 0
    assert told.read_text() == "shutdown slurmctld\n"


def test_unreachable_leader_delays_start_of_first_head(tmp_path: Path, other: socket.socket) -> None:
    port = other.getsockname()[1]
    other.close()
    beat(tmp_path, 1)
    ran = start(program(tmp_path, port))
    with pytest.raises(subprocess.TimeoutExpired):
        ran.wait(timeout=1.5)
    beat(tmp_path, 1, age_s=60)  # it is gone
    assert ran.wait(timeout=30) == 0


def test_new_leader_records_its_state_folder(tmp_path: Path) -> None:
    text = single_active_head.files(replace(builders.cluster(), controllers=2), first=False)[
        takeover_settings.LEADS
    ].text
    ours = tmp_path / "ours"
    text = text.replace(SLURM_STATE_FOLDER, str(tmp_path)).replace("/run/slurmctld/leads", str(ours))
    subprocess.run(["sh", "-c", text], check=True, timeout=60)
    assert ours.read_text() == (tmp_path / "leads").read_text()
    assert ours.read_text().split()[0] == os.uname().nodename
    assert ours.read_text().split()[2:] == [str(tmp_path)]


@pytest.mark.parametrize("head", [0, 1])
def test_slurmctld_restarts_when_leader_script_changes(head: int) -> None:
    two = replace(builders.cluster(), controllers=2)
    role = two.role_of(two.heads[head])
    (unit,) = [one for one in units_by_role(two, builders.site(two))[role] if one.name == "slurmctld.service"]
    assert takeover_settings.LEADS in unit.restart_on
