"""The files of a one-node Slurm fit its version and what the machine allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_proof.one_node_slurm import OneNodeSlurm, missing_programs

DEVICES = ["/dev/nvidia0", "/dev/nvidia1"]


def files(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, isolates: bool) -> tuple[str, str]:
    """Returns slurm.conf and cgroup.conf."""
    monkeypatch.setattr(OneNodeSlurm, "version", lambda _: version)
    made = OneNodeSlurm(DEVICES, isolates, folder=folder)
    return made._slurm_conf(), made._cgroup_conf()


@pytest.mark.parametrize(("version", "disabled"), [("22.05.8", ""), ("24.11.5", "CgroupPlugin=disabled\n")])
def test_cgroups_are_left_out_where_they_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, disabled: str
) -> None:
    slurm, cgroup = files(tmp_path, monkeypatch, version, isolates=False)
    assert (cgroup, "proctrack/cgroup" in slurm) == (disabled, False)
    assert "ConstrainDevices=yes" in files(tmp_path, monkeypatch, version, isolates=True)[1]


def test_every_gpu_is_a_gres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert " Gres=gpu:2\n" in files(tmp_path, monkeypatch, "24.11.5", isolates=True)[0]
    lines = OneNodeSlurm(DEVICES, folder=tmp_path)._gres_conf().splitlines()
    assert lines == [f"Name=gpu File={device} Flags=nvidia_gpu_env" for device in DEVICES]


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None if name == "slurmd" else f"/usr/sbin/{name}")
    assert missing_programs() == ["slurmd"]
