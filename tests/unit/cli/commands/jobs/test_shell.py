"""shell runs srun over SSH."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.cli import ssh_config_files
from headway.cli.commands.jobs import shell as shell_command
from headway.schemas.clusters import AccessOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_shell_runs_srun_over_ssh(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(shell_command, "exec_program", lambda argv, _: became.append(argv))
    monkeypatch.setattr(ssh_config_files, "write_ssh_config", lambda _: tmp_path / "config")
    cli.api.on(
        "clusters.ssh_access", AccessOut(cluster="lab", user="a", head="lab-head", address="10.0.0.1", host_keys=[])
    )
    cli("shell", "lab", "--gpus", "1", "--", "echo", "a b; id")
    # On one node: --gpus=9 alone would be given nine GPUs of two.
    step = "srun --job-name=shell --nodes=1 --ntasks=1 --gpus-per-node=1 echo 'a b; id'"
    assert became == [["ssh", "-F", str(tmp_path / "config"), "lab", step]]
