"""External volumes are mounted by systemd units, checked, unmounted on removal and benchmarked."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import config
from agent.checks import node_checks, runner
from headway.catalog.providers import SSH
from headway.changes.machine_changes import DesiredMachine, machine_changes
from headway.cluster.machine_steps import steps_by_stage
from headway.domain.changeset import Disturbs
from headway.domain.cluster import OwnedSite, Storage, Volume
from headway.domain.observed import NOT_OBSERVED
from headway.domain.systemd_unit import Unit
from headway.render.system import agent_config, systemd_files
from headway.render.system.unit_list import units_by_role
from headway.transport.remote_program import program_source
from headway.validation.syntax_rules import mount_line_fault
from ops import steps
from tests.support import builders

MODELS_2 = Volume("models2", "/models2", "nfs4", "filer:/scratch/models")
MODELS = Volume("models", "/models", "nfs4", "filer:/export/models", ("rw", "hard"))


@pytest.mark.parametrize(
    "line",
    [
        "nfs4 filer:/export/data rw,hard", "lustre mgs@tcp:/fsx", "beegfs beegfs_nodev cfgFile=/etc/beegfs/c.conf",
        "wekafs weka/fs num_cores=1", "fuse.sshfs ann@box:/srv ro", "none /scratch/x bind",
    ],
)  # fmt: skip
def test_valid_mount_lines_are_accepted(line: str) -> None:
    assert mount_line_fault(line) == ("", "")


@pytest.mark.parametrize(
    "line",
    [
        "nfs4", "nfs4 a:/b rw extra", "NFS a:/b", "nfs4 a:/b rw;reboot", "nfs4 $(id):/b", "nfs4 a:/b\n[Service]",
        "none /x rw", "nfs4 -o x",
    ],
)  # fmt: skip
def test_invalid_mount_lines_are_refused(line: str) -> None:
    assert mount_line_fault(line)[0]


def test_volume_becomes_a_mount_unit_that_blocks_no_other_unit() -> None:
    cluster = replace(builders.cluster(2), storage=Storage(volumes=(MODELS,)))
    unit = systemd_files.mounts(cluster, builders.site(cluster), head=False)["models.mount"]
    assert "What=filer:/export/models\nWhere=/models\nType=nfs4\nOptions=rw,hard,nosuid,nodev\n" in unit
    assert "LazyUnmount=yes" in unit
    assert "RequiresMountsFor" not in unit
    assert systemd_files.volume_units(cluster) == {"models.mount": "/models"}


def test_volume_is_unmounted_after_the_agent_restart() -> None:
    unit = "/etc/systemd/system/models.mount"
    agent = Unit("headway-agent.service", restart_on=("/etc/headway/agent.json",), stage="node")
    wanted = DesiredMachine.build({}, {}, (agent,))
    rows = list(machine_changes("n1", wanted, replace(NOT_OBSERVED, managed=(unit,))))
    (gone,) = [row for row in rows if row.what == unit]
    assert gone.disturbs is Disturbs.JOBS
    stages = steps_by_stage(rows, wanted, {}, fresh=False)
    assert all(step["op"] not in ("unmount", "managed") for step in stages.get("base", ()))
    last = [step["op"] for step in stages["node"]]
    # The last, because a repair may mount it again for as long as systemd knows it.
    assert last[-5:] == ["unmount", "remove", "managed", "daemon_reload", "unmount"]
    assert last.index("units") < last.index("unmount")


def test_unavailable_volume_does_not_block_heads_or_nodes() -> None:
    cluster = replace(builders.cluster(2), storage=Storage(volumes=(MODELS,)))
    roles = units_by_role(cluster, builders.site(cluster))
    for role, last in (("head", "controller"), ("node", "node")):
        wanted = DesiredMachine.build({}, {}, roles[role])
        stages = steps_by_stage(machine_changes("x", wanted, NOT_OBSERVED), wanted, {}, fresh=True)
        (mount,) = (step for step in stages["outside"] if step["op"] == "units")
        assert (mount["names"], mount["may_fail"]) == (["models.mount"], True)
        order = [stage for stage in stages if stage in ("outside", last)]
        assert order == (["controller", "outside"] if role == "head" else ["outside", "node"])
        others = [step for stage, steps in stages.items() for step in steps if stage != "outside"]
        assert not any(step.get("may_fail") or "models.mount" in step.get("names", ()) for step in others)


@pytest.mark.parametrize(
    "volume",
    [
        Volume("models", "/models", "none", "/scratch/models", ("bind",)),
        Volume("models", "/scratch/models", "nfs4", "filer:/export/models"),
    ],
)
def test_volume_below_a_head_export_is_mounted_after_it(volume: Volume) -> None:
    cluster = replace(builders.cluster(2, provider=SSH), storage=Storage(volumes=(MODELS_2, volume)))
    site = replace(builders.site(cluster), own=OwnedSite(nfs=("/scratch",)))
    unit = f"{systemd_files.escape(volume.path)}.mount"
    wanted = DesiredMachine.build({}, {}, units_by_role(cluster, site)["node"])
    stages = steps_by_stage(machine_changes("x", wanted, NOT_OBSERVED), wanted, {}, fresh=True)
    assert [step["names"] for step in stages["outside"]] == [["models2.mount"]]
    mounts = [step for step in stages["node"] if any(name.endswith(".mount") for name in step.get("names", ()))]
    assert [step["names"][-1] for step in mounts] == ["scratch.mount", unit]
    assert [step.get("may_fail", False) for step in mounts] == [False, True]
    assert mounts[1]["names"] == [unit], "nothing else may fail with it"

    local = replace(site, own=OwnedSite())
    (one,) = (one for one in units_by_role(cluster, local)["node"] if one.name == unit)
    assert one.stage == "outside", "every machine has /scratch already"


def test_failed_optional_step_warns_and_the_next_steps_run(tmp_path: Path) -> None:
    away = {"op": "run", "argv": ["sh", "-c", "echo no route to host >&2; exit 32"], "may_fail": True}
    there = {"op": "run", "argv": ["touch", str(tmp_path / "there")]}
    ask = json.dumps({"do": "apply", "steps": [away, there]})
    ran = subprocess.run(
        [sys.executable, "-c", program_source("ops")], input=ask, capture_output=True, text=True, check=True
    )
    first, second = (json.loads(line) for line in ran.stdout.splitlines())
    assert (first["ok"], second["ok"]) == (True, True)
    assert "no route to host" in first["warning"]
    assert (tmp_path / "there").exists()


def test_unmount_step_does_not_access_the_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(argv: list[str], *_: Any, **__: Any) -> str:
        ran.append(" ".join(argv))
        return "/models\n" if "show" in argv else ""

    def waits(name: str) -> Any:
        real = getattr(os, name)

        def ask(path: Any, *args: Any, **more: Any) -> Any:
            assert not str(path).startswith("/models"), "whoever asks a dead server waits for it"
            return real(path, *args, **more)

        return ask

    monkeypatch.setattr(steps, "run", run)
    monkeypatch.setattr(steps, "_MOUNTS", str(tmp_path / "mounts"), raising=False)
    for name in ("lstat", "stat", "statvfs"):
        monkeypatch.setattr(os, name, waits(name))
    for mounts in ("f:/models /models nfs4 rw 0 0\n", "f:/x /models/x nfs4 rw 0 0\n"):
        (tmp_path / "mounts").write_text(mounts)
        steps.op_unmount({"unit": "models.mount"})
    (unmount,) = (line for line in ran if line.startswith("umount"))
    assert unmount.endswith(" /models")
    assert {"--lazy", "--no-canonicalize"} <= set(unmount.split())


def seen(tmp_path: Path, mounts: str, mount: Any) -> Any:
    proc = tmp_path / "proc" / "self"
    proc.mkdir(parents=True, exist_ok=True)
    (proc / "mounts").write_text(mounts)
    return runner.MachineState(config=config.Config(head="h", mounts=(mount,)), now=1.0, proc=str(tmp_path / "proc"))


def test_lost_remote_volume_does_not_request_a_reboot(tmp_path: Path) -> None:
    outside = config.Mount("/", "/", False, True)
    assert node_checks.volumes(seen(tmp_path, "", outside)).action == "mount"
    assert node_checks.volumes(seen(tmp_path, "f / nfs4 rw 0 0\n", outside)) is None
    assert node_checks.remote_volumes(seen(tmp_path, "f / nfs4 rw 0 0\n", outside)) is None
    assert node_checks.remote_volumes(seen(tmp_path, "f / nfs4 ro 0 0\n", outside)).action == "mount"
    assert node_checks.mounts(seen(tmp_path, "f / nfs4 ro 0 0\n", outside)) is None
    hung = next(one for one in runner.CHECKS if one.name == "remote_volumes")
    assert hung.hangs == "mount"


@pytest.mark.parametrize(("outside", "action"), [(True, "mount"), (False, "reboot")])
def test_scratch_fault_requests_a_mount_only_if_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outside: bool, action: str
) -> None:
    plan = config.Config(head="h", mounts=(config.Mount("/scratch", "/", False, outside),))
    one = next(one for one in runner.CHECKS if one.name == "scratch_writes")
    assert one.hung_result(runner.MachineState(config=plan, now=1000.0), "hangs").action == action

    def gone(**_: Any) -> Any:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(node_checks.tempfile, "TemporaryFile", gone)
    assert node_checks.scratch_writes(runner.MachineState(config=plan, now=1000.0)).action == (
        "mount" if outside else "drain"
    )


def test_volume_benchmark_measures_and_leaves_no_files(tmp_path: Path) -> None:
    ask = json.dumps({"paths": [str(tmp_path), str(tmp_path / "none")], "mib": 8})
    ran = subprocess.run(
        [sys.executable, "-c", program_source("volume_speed"), ask], capture_output=True, text=True, check=True
    )
    first, second = (json.loads(line) for line in ran.stdout.splitlines())
    assert min(first["write"], first["read"], first["checkpoint"]) > 0
    assert second["error"] == "No such file or directory"
    assert list(tmp_path.iterdir()) == []


def test_volume_benchmark_removes_leftovers_of_a_killed_one(tmp_path: Path) -> None:
    for name, age_s in (("old", 7200), ("new", 0)):
        folder = tmp_path / f".headway-bench-{name}"
        folder.mkdir()
        (folder / "one").write_bytes(b"x")
        os.utime(folder, (time.time() - age_s,) * 2)
    (tmp_path / ".headway-bench-link").symlink_to(tmp_path / ".headway-bench-new")
    ask = json.dumps({"paths": [str(tmp_path)], "mib": 1})
    subprocess.run([sys.executable, "-c", program_source("volume_speed"), ask], capture_output=True, check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".headway-bench-link", ".headway-bench-new"]


def test_head_exports_count_as_remote_mounts_on_nodes(tmp_path: Path) -> None:
    """Its restart is no fault of the nodes': their jobs wait for it, and go on."""
    cluster = builders.cluster(provider=SSH)
    site = replace(builders.site(cluster), own=OwnedSite(nfs=("/home", "/scratch")))
    told = config.load(str(_written(tmp_path, agent_config.config(cluster, site, cluster.groups[0]))))
    assert [(one.path, one.outside) for one in told.mounts] == [("/home", True), ("/scratch", True)]
    told = config.load(str(_written(tmp_path, agent_config.config(cluster, site, cluster.groups[0], head="lab-head"))))
    assert told.mounts == ()


def _written(folder: Path, text: str) -> Path:
    (folder / "agent.json").write_text(text)
    return folder / "agent.json"
