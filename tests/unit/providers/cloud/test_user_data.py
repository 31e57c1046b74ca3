"""The user data of a rented machine, and the program in it that ends the machine when its lease is over."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from headway.providers.cloud.user_data import LEASE_FILE, LEASE_PROGRAM, user_data
from headway.validation.yaml_parser import parse_yaml

LEASE_S = 3600
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"


def document(*, head: bool = False) -> dict[str, object]:
    text = user_data(
        host_key=KEY, host_key_public="ssh-ed25519 A", authorized_key="ssh-ed25519 B", lease_s=LEASE_S, head=head
    )
    assert text.startswith("#cloud-config\n")
    return dict(parse_yaml(text))


def test_machine_answers_with_the_given_key_and_lets_headway_in() -> None:
    made = document()
    assert made["ssh_keys"] == {"ed25519_private": KEY, "ed25519_public": "ssh-ed25519 A"}
    assert made["ssh_deletekeys"] is True
    assert made["ssh_authorized_keys"] == ["ssh-ed25519 B"]
    assert made["ssh_pwauth"] is False


def powers_off(folder: Path, *, age_s: int | None, jobs: bool, head: bool = False) -> bool:
    """Runs the lease program with stand-ins for the programs that it calls. `age_s` None: there is no lease file."""
    files = document(head=head)["write_files"]
    assert isinstance(files, list)
    lease = folder / "lease"
    (text,) = [file["content"] for file in files if file["path"] == LEASE_PROGRAM]
    program = folder / "program"
    program.write_text(text.replace(LEASE_FILE, str(lease)).replace("/proc/", f"{folder}/proc/"))
    (folder / "proc/7").mkdir(parents=True)
    (folder / "proc/7/comm").write_text("slurmstepd\n" if jobs else "slurmd\n")
    if age_s is not None:
        lease.touch()
        os.utime(lease, (time.time() - age_s,) * 2)
    bodies = {
        "systemctl": f'echo "$@" >{folder}/called',
        "squeue": "echo '1 train'" if jobs else "exit 0",
    }
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    subprocess.run(["sh", program], env={"PATH": f"{folder}:/usr/bin:/bin"}, check=True, timeout=30)
    called = folder / "called"
    assert not called.exists() or called.read_text() == "poweroff\n"
    return called.exists()


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize(
    ("age_s", "jobs", "ends"),
    [(LEASE_S - 60, False, False), (LEASE_S + 60, False, True), (LEASE_S + 60, True, False), (None, False, True)],
)
def test_machine_ends_itself_after_its_lease_once_no_job_runs(
    tmp_path: Path, age_s: int | None, jobs: bool, ends: bool, head: bool
) -> None:
    assert powers_off(tmp_path, age_s=age_s, jobs=jobs, head=head) is ends
