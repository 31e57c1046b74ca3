"""Packages for the one-node Slurm are installed from the folder that the user names, and services are not started."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_proof import packages
from gpu_proof.one_node_slurm import SlurmFailed


def test_folder_without_packages_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_slurm_here", list)
    with pytest.raises(SlurmFailed, match=r"has no \*\.deb files"):
        packages.install_packages(str(tmp_path))


@pytest.mark.parametrize("fails", [False, True])
def test_services_may_not_start_during_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    policy, ran = tmp_path / "policy-rc.d", []
    (tmp_path / "slurmd_24.11.5_amd64.deb").touch()
    monkeypatch.setattr(packages, "_POLICY", policy)
    monkeypatch.setattr(packages, "_slurm_here", list)

    def run(*argv: str) -> None:
        ran.append(argv)
        assert "exit 101" in policy.read_text()
        if fails:
            raise SlurmFailed("dpkg ended with 1: dependency problems")

    monkeypatch.setattr(packages, "_run", run)
    if fails:
        with pytest.raises(SlurmFailed, match="dependency problems"):
            packages.install_packages(str(tmp_path))
    else:
        assert packages.install_packages(str(tmp_path)) == f"1 packages of {tmp_path}"
    file = str(tmp_path / "slurmd_24.11.5_amd64.deb")
    assert ran == [("dpkg", "--install", "--refuse-downgrade", "--skip-same-version", file)]
    assert not policy.exists()


def test_apt_removes_and_upgrades_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(packages, "_POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(packages, "_slurm_here", list)
    monkeypatch.setattr(packages, "_run", lambda *argv: ran.append(argv))
    packages.install_packages("")
    assert {"install", "--no-remove", "--no-upgrade"} <= set(ran[-1])


@pytest.mark.parametrize("from_folder", [False, True])
@pytest.mark.parametrize(
    ("comm", "installed", "found"),
    [
        ("munged", [], "munged runs"),
        ("sshd", ["munged", "squeue"], "installed: munged, squeue"),
        ("slurmdbd", [], "slurmdbd runs"),
    ],
)
def test_nothing_is_installed_on_a_machine_with_a_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_folder: bool, comm: str, installed: list[str], found: str
) -> None:
    (tmp_path / "proc/17").mkdir(parents=True)
    (tmp_path / "proc/17/comm").write_text(f"{comm}\n")
    (tmp_path / "slurmd_24.11.5_amd64.deb").touch()
    monkeypatch.setattr(packages, "_PROC", tmp_path / "proc")
    monkeypatch.setattr("shutil.which", lambda name, path: f"/usr/sbin/{name}" if name in installed else None)
    monkeypatch.setattr(packages, "_run", lambda *argv: pytest.fail(f"ran {argv}"))
    with pytest.raises(SlurmFailed, match=f"has a Slurm or MUNGE already: {found}; nothing was installed"):
        packages.install_packages(str(tmp_path) if from_folder else "")
