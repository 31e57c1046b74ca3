"""Checks of GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import config
from agent.checks import gpu_checks
from agent.gpu import gpu_metrics
from agent.gpu.mig import Instance
from agent.metrics.active_clock import ActiveClock
from tests.support.machines.check_inputs import PLAN, gpus, seen


@pytest.mark.parametrize(
    ("look", "figures", "state", "action"),
    [
        (gpu_checks.gpu_count, {"lost": 1}, "bad", "reboot"),
        (gpu_checks.gpu_memory_errors, {gpu_metrics.DBE: 1}, "bad", "reset_gpu"),
        (gpu_checks.gpu_memory_errors, {gpu_metrics.ROWS_PENDING: 1}, "bad", "reset_gpu"),
        (gpu_checks.gpu_memory_errors, {gpu_metrics.ROWS_FAILED: 1, gpu_metrics.DBE: 1}, "bad", "replace"),
        (gpu_checks.gpu_memory_errors, {gpu_metrics.ROWS_BAD: 9}, "warn", "watch"),
        (gpu_checks.gpu_nvlink, {gpu_metrics.NVLINKS: 17}, "bad", "reset_gpu"),
        (gpu_checks.gpu_throttled, {gpu_metrics.THROTTLE: 0x40}, "warn", "watch"),
        (gpu_checks.gpu_pcie, {gpu_metrics.PCIE_WIDTH: 8}, "bad", "reboot"),
        (gpu_checks.gpu_left_over, {gpu_metrics.FB_USED: 5000}, "warn", "reset_gpu"),
    ],
)
def test_gpu_checks_report_state_action_and_gpu_index(look: Any, figures: Any, state: str, action: str) -> None:
    assert look(seen()) is None, "a sound one"
    found = look(seen(gpus=gpus(**figures)))
    assert (found.state, found.action, found.gpu) == (state, action, 1)
    assert "GPU 1" in found.reason


def test_gpu_count_reports_a_missing_gpu() -> None:
    found = gpu_checks.gpu_count(seen(gpus=gpus()[:1]))
    assert (found.state, found.gpu, found.reason) == ("bad", 1, "1 GPUs found, 2 expected")
    assert gpu_checks.gpu_count(seen(gpus=[], gpus_at=None)) is None, "no reading yet"


def test_throttle_check_ignores_idle_clocks_and_fails_after_a_minute() -> None:
    for idle in (0x1, 0x2, 0x4, 0x10, 0x100):
        assert gpu_checks.gpu_throttled(seen(gpus=gpus(**{gpu_metrics.THROTTLE: idle}))) is None
    kept: dict[str, Any] = {}
    hot = gpus(**{gpu_metrics.THROTTLE: 0x88})
    states = [gpu_checks.gpu_throttled(seen(now=at, kept=kept, gpus=hot)).state for at in (100.0, 130.0, 161.0)]
    assert states == ["warn", "warn", "bad"]
    gpu_checks.gpu_throttled(seen(now=170.0, kept=kept))
    assert gpu_checks.gpu_throttled(seen(now=180.0, kept=kept, gpus=hot)).state == "warn", "the count starts again"


def test_node_whose_gpus_had_no_driver_when_it_joined_says_why(tmp_path: Path) -> None:
    (tmp_path / "module/nouveau").mkdir(parents=True)
    bare = replace(PLAN, gpus=0, driverless_gpus=8)
    found = gpu_checks.gpu_driver(seen(config=bare, gpus=[], sys=str(tmp_path)))
    assert (found.state, found.action) == ("bad", "drain")
    assert found.reason == (
        "Slurm has none of the 8 GPUs, because no driver found them when the node joined: nouveau holds the GPUs: blacklist it "
        "and reboot; then apply again"
    )
    assert gpu_checks.gpu_driver(seen(config=replace(bare, driverless_gpus=0), gpus=[])) is None


def test_driver_without_new_readings_is_bad() -> None:
    assert gpu_checks.gpu_answers(seen(gpus_at=990.0)) is None
    assert gpu_checks.gpu_answers(seen(gpus_at=900.0, gpu_error="NVML error 999")).state == "bad"
    assert gpu_checks.gpu_answers(seen(gpus_at=None, started=999.0)) is None, "just started"
    assert gpu_checks.gpu_answers(seen(config=config.Config(head="h"), gpus_at=None)) is None, "no GPUs"


@pytest.mark.parametrize(
    ("looks", "state"),
    [
        ([*range(1, 60)], "bad"),  # the agent looks each second, and the driver says nothing
        ([1, 152], None),  # the machine stood still: neither could do anything
        ([*range(1, 120, 12)], None),  # it is short of everything: the agent comes round each 12 s
        ([1, 152, *range(153, 202)], "bad"),  # it goes on, and the driver does not
    ],
)
def test_driver_timeout_ignores_time_the_agent_did_not_run(looks: list[int], state: str | None) -> None:
    now = [0.0]
    awake = ActiveClock(lambda: now[0])
    said = None
    for at in looks:
        now[0] = float(at)
        said = gpu_checks.gpu_answers(seen(now=awake.tick(), started=0.0, gpus_at=0.0))
    assert (said.state if said else None) == state


def test_check_of_gpu_parts_names_a_missing_instance() -> None:
    halves = (Instance(0, 4, 3, 1, "3g.40gb"), Instance(4, 4, 3, 2, "3g.40gb"))
    config = replace(PLAN, mig=halves)
    first, second = (replace(gpu, mig=list(halves)) for gpu in gpus())
    assert gpu_checks.gpu_parts(seen(config=config, gpus=[first, second])) is None
    assert gpu_checks.gpu_parts(seen(config=config, gpus=[first, replace(second, mig=None)])) is None, "not read"
    assert gpu_checks.gpu_nvlink(seen(config=config, gpus=gpus(**{gpu_metrics.NVLINKS: 0}))) is None
    found = gpu_checks.gpu_parts(seen(config=config, gpus=[first, replace(second, mig=[halves[0]])]))
    assert (found.state, found.action, found.gpu) == ("bad", "drain", 1)
    assert found.reason == "GPU 1 has no MIG instance 3g.40gb at memory slice 4"


def test_check_of_mps_names_the_missing_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    config = replace(PLAN, mps=True, simulated=False)
    found = gpu_checks.gpu_mps(seen(config=config))
    assert (found.state, found.action) == ("bad", "drain")
    assert found.reason.startswith("nvidia-cuda-mps-control is missing")
    assert gpu_checks.gpu_mps(seen(config=replace(config, mps=False))) is None
    assert gpu_checks.gpu_mps(seen(config=replace(config, simulated=True))) is None
    (tmp_path / "nvidia-cuda-mps-control").touch(mode=0o755)
    assert gpu_checks.gpu_mps(seen(config=config)) is None
