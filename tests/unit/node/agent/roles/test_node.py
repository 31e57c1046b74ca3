"""The main loop of a node's agent never waits for a GPU driver."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from agent.config import Config
from agent.gpu.factory import LateSource
from agent.gpu.interface import Gpu
from agent.gpu.nvml import Nvml
from agent.metrics.sampler import GpuReader, Sampler
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
