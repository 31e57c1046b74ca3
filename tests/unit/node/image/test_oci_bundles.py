"""OCI bundles of srun --container."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def bundle(root: Path, *env: str) -> dict[str, Any]:
    """A bundle's config.json as Slurm hands it on."""
    return {
        "process": {"args": ["/usr/bin/id", "-u"], "env": ["PATH=/bin:/opt/bin", *env]},
        "root": {"path": str(root)},
    }


def test_bundle_gets_the_gpus_of_its_job(
    runtime: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "gpus.json"
    settings.touch()
    monkeypatch.setattr(runtime["sandbox"], "SIMULATED", str(settings))
    monkeypatch.setattr(runtime["sandbox"], "SIMULATED_SMI", str(settings))
    root = tmp_path / "root"
    root.mkdir()
    plain = bundle(root)
    runtime["oci_bundles"].complete(plain)
    assert plain["mounts"] == []
    config = bundle(root, "CUDA_VISIBLE_DEVICES=0")
    runtime["oci_bundles"].complete(config)
    mounts = {mount["destination"]: mount for mount in config["mounts"]}
    assert mounts["/usr/bin/nvidia-smi"]["options"] == ["bind", "ro"]
    assert mounts["/run/headway/sim"]["source"] == "/usr"
    monkeypatch.setattr(os, "access", lambda *_: False)
    of_another = bundle(root, "CUDA_VISIBLE_DEVICES=0")
    runtime["oci_bundles"].complete(of_another)
    assert "/usr/bin/nvidia-smi" not in {mount["destination"] for mount in of_another["mounts"]}
    assert "is not yours to change" in capsys.readouterr().err


def test_bundle_runs_the_program_where_its_image_has_it(runtime: dict[str, ModuleType], tmp_path: Path) -> None:
    (tmp_path / "opt/bin").mkdir(parents=True)
    config = bundle(tmp_path)
    runtime["oci_bundles"].complete(config)
    assert config["process"]["args"] == ["/usr/bin/id", "-u"]  # crun says that it is not there
    (tmp_path / "opt/bin/id").touch()
    runtime["oci_bundles"].complete(config)
    assert config["process"]["args"] == ["/opt/bin/id", "-u"]
