"""The main loop of a node's agent never waits for a GPU driver."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.config import Config
from agent.gpu.gpu_source import Gpu
from agent.gpu.gpu_source_choice import LateSource
from agent.gpu.nvml import Nvml
from agent.metrics.sampler import GpuReader, Sampler
from agent.roles import head as relay
from agent.roles import node


class Driver(Nvml):
    """NVML whose waits for an event answer what `answers` says, and then for ever nothing."""

    def __init__(self, *answers: tuple[str, int] | OSError) -> None:
        self.answers, self.waits = list(answers), threading.Event()

    def wait_for_event(self) -> Callable[[int], tuple[str, int] | None]:
        def wait(_: int) -> tuple[str, int] | None:
            if not self.answers:
                self.waits.set()
                threading.Event().wait()
            answer = self.answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            return answer

        return wait


def test_events_go_on_after_an_error_of_nvml_without_being_asked_for_in_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.DriverEvents, "HOLD_S", 0.0)
    slept: list[float] = []
    source = LateSource(Config(head="h", gpus=2))
    source.opened = driver = Driver(OSError("the GPU is lost"), OSError("the GPU is lost"), ("0000:3b:00", 79))
    events = node.DriverEvents(source, slept.append)
    events.start()
    assert driver.waits.wait(60)
    assert slept == [node.DriverEvents.AGAIN_S] * 2
    assert events.has_event(2e9)
    assert events.next() == ("0000:3b:00", 79)


def test_events_wait_until_the_driver_has_answered() -> None:
    source = LateSource(Config(head="h", gpus=2))
    driver = Driver(("0000:3b:00", 79))

    def answers(_: float) -> None:
        source.opened = driver

    events = node.DriverEvents(source, answers)
    events.start()
    assert driver.waits.wait(60)
    assert events.next() == ("0000:3b:00", 79)


def test_driver_that_raises_anything_is_read_again() -> None:
    class Broken:
        simulated, driver = False, ""

        def read(self) -> list[Gpu]:
            raise AttributeError("nvmlDeviceGetCount_v2")

    reader = GpuReader(Broken())
    reader.read_once()
    assert reader.first.is_set()
    assert reader.error == "AttributeError: nvmlDeviceGetCount_v2"


def test_numbers_of_gpus_come_from_their_readings() -> None:
    class Driver:
        simulated, driver = False, "570.1"

        def read(self) -> list[Gpu]:
            return [Gpu(0, "", "", "00000000:3B:00.0"), Gpu(1, "", "", "00000000:61:00.0", lost=True)]

    watcher = Sampler(Config(head="h", gpus=2), Driver())
    assert (watcher.gpus_were_read, watcher.gpus_by_bus()) == (False, {}), "the kernel's log is read later"
    assert watcher.reader is not None
    watcher.reader.read_once()
    assert (watcher.gpus_were_read, watcher.gpus_by_bus()) == (True, {":3b:00": 0, ":61:00": 1})


def row(state: str, at: float = 5.0) -> dict[str, Any]:
    return {"check": "gpu_count", "at": at, "state": state, "reason": "r", "action": "reboot", "gpu": 3}


def test_bad_results_are_sent_until_the_head_acknowledges_them(tmp_path: Path) -> None:
    results = node.ChangedResults("lab-1-1", "b00t")
    assert not results.add(deque([row("ok", 1.0)])), "good news can wait for the next heartbeat"
    assert results.add(deque([row("bad")]))
    beat = {"node": "lab-1-1", "faults": [], **results.message_part()}
    spool = tmp_path / "faults.jsonl"
    head = relay.NodeMessages(str(tmp_path / "reports"), str(spool))
    answer = head.receive(json.dumps(beat).encode(), 9.0, 9.0)
    assert len(answer["got"]) == 2
    results.acknowledge(answer["got"])
    assert results.message_part() == {"checks": []}
    (kept,) = [json.loads(line) for line in spool.read_text().splitlines()]
    assert kept == {"id": "lab-1-1-b00t-gpu_count-5.000", "node": "lab-1-1", **row("bad")}


def test_unsent_mount_failure_is_dropped_after_recovery() -> None:
    """While the head is away its volumes are, too: it would hear of both when both are back."""
    results = node.ChangedResults("lab-1-1", "b00t")
    lost = {**row("bad", 1.0), "check": "remote_volumes", "action": "mount"}
    results.add(deque([lost, row("bad", 2.0)]))
    assert len(results.unsent) == 2
    results.add(deque([{**lost, "at": 3.0, "state": "ok", "action": "none"}, row("ok", 4.0)]))
    left = [(one["check"], one["state"]) for one in results.message_part()["checks"]]
    assert left == [("gpu_count", "bad"), ("remote_volumes", "ok"), ("gpu_count", "ok")], (
        "a fault that went away by itself was one"
    )
