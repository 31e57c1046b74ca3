"""The check runner runs checks on time, reports changed results, and writes the files that the prolog reads."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from agent.checks import runner as checks
from agent.gpu import job_gpus
from agent.metrics import sampler
from tests.support.machines.check_inputs import PLAN, gpus, seen
from tests.support.paths import NODE


class Look:
    """A check whose answer the test says."""

    def __init__(self, **how: Any) -> None:
        known: dict[str, Any] = {
            "every_s": 5.0,
            "prolog": False,
            "idle": False,
            "waits": False,
            "limit_s": 0.0,
            "times": 1,
        }
        self.answer: Any = None
        self.ran = 0
        self.check = checks.AgentCheck("it", self._run, **{**known, **how})

    def _run(self, _: Any) -> Any:
        self.ran += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def runner(tmp_path: Path, look: Look) -> Any:
    return checks.Runner([look.check], folder=str(tmp_path))


def test_runner_reports_a_result_only_when_it_changes(tmp_path: Path) -> None:
    look = Look()
    run = runner(tmp_path, look)
    (first,) = run.run_due(seen(now=10.0), 1.0)
    assert (first["state"], first["at"]) == ("ok", 1.0), "the first time, that all is well too"
    assert run.run_due(seen(now=12.0), 3.0) == [], "not due"
    assert look.ran == 1
    look.answer = checks.bad("broken", gpu=3)
    (results,) = run.run_due(seen(now=16.0), 7.0)
    assert results == {"check": "it", "at": 7.0, "state": "bad", "reason": "broken", "action": "drain", "gpu": 3}
    look.answer = checks.bad("broken, 2 now", gpu=3)
    assert run.run_due(seen(now=22.0), 13.0) == []
    look.answer = None
    assert [row["state"] for row in run.run_due(seen(now=28.0), 19.0)] == ["ok"]


def test_check_with_times_two_needs_two_bad_readings(tmp_path: Path) -> None:
    look = Look(times=2)
    run = runner(tmp_path, look)
    run.run_due(seen(now=0.0), 0.0)
    states = []
    for number, answer in enumerate([checks.bad("x"), None, checks.bad("x"), checks.bad("x"), None, None]):
        look.answer = answer
        states += [row["state"] for row in run.run_due(seen(now=10.0 + 10 * number), 0.0)]
    assert states == ["bad", "ok"]


def test_idle_checks_run_only_without_jobs(tmp_path: Path) -> None:
    look = Look(idle=True)
    run = runner(tmp_path, look)
    run.run_due(seen(now=1.0, jobs=[job_gpus.GpuJob(1, ())]), 0.0)
    assert look.ran == 0
    run.run_due(seen(now=2.0), 0.0)
    assert look.ran == 1


def test_check_that_raises_is_reported_as_warning(tmp_path: Path) -> None:
    look = Look()
    look.answer = ValueError("no number")
    (results,) = runner(tmp_path, look).run_due(seen(now=1.0), 0.0)
    assert (results["state"], results["reason"]) == ("warn", "the check itself failed: ValueError: no number")


def test_hanging_check_becomes_bad_without_blocking_others(tmp_path: Path) -> None:
    going = threading.Event()

    def hang(_: Any) -> Any:
        going.wait(60)

    stuck = checks.AgentCheck("stuck", hang, 5.0, False, False, True, 10.0, 1)
    look = Look()
    run = checks.Runner([stuck, look.check], folder=str(tmp_path))
    assert [row["check"] for row in run.run_due(seen(now=0.0), 0.0)] == ["it"]
    assert run.run_due(seen(now=9.0), 0.0) == []
    (results,) = run.run_due(seen(now=11.0), 0.0)
    assert (results["check"], results["state"], results["action"]) == ("stuck", "bad", "reboot")
    thread = run.states["stuck"].thread
    going.set()
    thread.join(60)
    assert [row["state"] for row in run.run_due(seen(now=12.0), 0.0)] == ["ok"]


def test_bad_prolog_check_writes_the_unfit_file(tmp_path: Path) -> None:
    look = Look(prolog=True)
    run = runner(tmp_path, look)
    look.answer = checks.bad("no GPU")
    run.run_due(seen(now=0.0), 0.0)
    assert (tmp_path / "unfit").read_text() == "no GPU\n"
    look.answer = checks.warn("one GPU is warm")
    run.run_due(seen(now=10.0), 0.0)
    assert not (tmp_path / "unfit").exists()


def test_looked_file_waits_for_a_result_of_every_prolog_check(tmp_path: Path) -> None:
    going, looked = threading.Event(), tmp_path / "looked"

    def slow(_: Any) -> Any:
        going.wait(60)

    waits = checks.AgentCheck("mounts", slow, 5.0, True, False, True, 10.0, 1)
    other = checks.AgentCheck("sensors", slow, 5.0, False, False, True, 10.0, 1)
    twice = Look(prolog=True, times=2)
    run = checks.Runner([waits, other, twice.check], folder=str(tmp_path))
    (tmp_path / "unfit").write_text("GPU 1 is lost\n")  # from before the agent was started anew
    run.run_due(seen(now=0.0), 0.0)
    assert (looked.exists(), (tmp_path / "unfit").exists()) == (False, True)
    going.set()

    def run_due(now: float) -> None:
        """Runs what is due, after all threads of the previous run have ended."""
        for state in run.states.values():
            if state.thread is not None:
                state.thread.join(60)
        run.run_due(seen(now=now), 0.0)

    twice.answer = checks.bad("GPU 1 is lost")
    run_due(6.0)
    assert not looked.exists(), "it may be bad: the next look says"
    run_due(12.0)
    assert (looked.exists(), (tmp_path / "unfit").read_text()) == (True, "GPU 1 is lost\n")
    twice.answer = None
    run_due(18.0)
    run_due(24.0)
    assert (looked.exists(), (tmp_path / "unfit").exists()) == (True, False)


class Driver:
    """GPUs that answer when they are let."""

    simulated, driver = True, "1"

    def __init__(self) -> None:
        self.answers = threading.Event()

    def read(self) -> Any:
        self.answers.wait(60)
        return gpus(lost=1)


def test_looked_file_waits_for_gpu_readings(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sampler, "jobs_on_node", list)
    driver, looked = Driver(), tmp_path / "looked"
    count = next(check for check in checks.CHECKS if check.name == "gpu_count")
    looks = sampler.Sampler(PLAN, driver, checks.Runner([count], folder=str(tmp_path)), str(tmp_path))
    looks.sample(looks.seen.started + 1)
    assert not looked.exists()
    driver.answers.set()
    looks.reader.read_once()
    looks.sample(looks.seen.started + 2)
    assert not looked.exists(), "one reading is not enough"
    looks.sample(looks.seen.started + 8)
    assert (looked.exists(), (tmp_path / "unfit").exists()) == (True, True)


def test_looked_file_is_written_after_a_timeout_without_gpu_readings(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sampler, "jobs_on_node", list)
    look = Look(prolog=True)
    looks = sampler.Sampler(PLAN, Driver(), checks.Runner([look.check], folder=str(tmp_path)), str(tmp_path))
    looks.sample(looks.seen.started + sampler.FIRST_S - 1)
    assert not (tmp_path / "looked").exists()
    looks.sample(looks.seen.started + sampler.FIRST_S + 1)
    assert (tmp_path / "looked").exists()


def test_checks_have_unique_names_and_waiting_ones_a_time_limit() -> None:
    names = [check.name for check in checks.CHECKS]
    assert len(names) == len(set(names)) >= 18
    assert {check.name for check in checks.CHECKS if check.waits} >= {"mounts", "disk", "disk_writes", "scratch_writes"}
    assert all(check.limit_s > 0 for check in checks.CHECKS if check.waits)


def test_agent_registers_gpu_and_machine_checks() -> None:
    code = "from agent.metrics import sampler; from agent.checks.runner import CHECKS; print(*[one.name for one in CHECKS])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=NODE, capture_output=True, text=True, timeout=60, check=True)
    assert {"gpu_count", "gpu_memory_errors", "mounts", "slurmd"} <= set(ran.stdout.split())
