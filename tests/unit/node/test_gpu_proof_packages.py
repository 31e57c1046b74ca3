"""Packages for the one-node Slurm are installed from the folder that the user names, and services are not started."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_proof import packages
from gpu_proof.one_node_slurm import SlurmFailed


def test_folder_without_packages_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SlurmFailed, match=r"has no \*\.deb files"):
        packages.install_packages(str(tmp_path))


@pytest.mark.parametrize("fails", [False, True])
def test_services_may_not_start_during_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    policy, ran = tmp_path / "policy-rc.d", []
    (tmp_path / "slurmd_24.11.5_amd64.deb").touch()
    monkeypatch.setattr(packages, "_POLICY", policy)

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
