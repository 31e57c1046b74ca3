"""The source of GPU readings that fits a node."""

from __future__ import annotations

import pytest

from agent import config
from agent.gpu import dcgm, gpu_source_choice, nvml
from tests.support.machines.fake_nvml import FakeNvml
from tests.support.machines.simulated_gpus import PLAN


def test_source_is_opened_by_the_first_reading_that_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    library, opened = FakeNvml(), list[str]()

    def load(name: str) -> FakeNvml:
        opened.append(name)
        if len(opened) == 1:
            raise OSError("the driver is not loaded yet")
        return library

    monkeypatch.setattr(nvml.ctypes, "CDLL", load)
    monkeypatch.setattr(dcgm, "ADDRESS", ("127.0.0.1", 1))
    source = gpu_source_choice.LateSource(config.Config(head="h", gpus=2))
    assert (source.opened, source.driver, opened) == (None, "", []), "a broken driver may block for ever"
    with pytest.raises(OSError, match="refused"):
        source.read()
    assert [gpu.index for gpu in source.read()] == [0, 1]
    assert [gpu.index for gpu in source.read()] == [0, 1]
    assert (source.driver, len(opened)) == ("570.1", 2)


def test_open_source_chooses_simulation_dcgm_or_no_gpus() -> None:
    assert gpu_source_choice.open_source(PLAN).simulated
    assert gpu_source_choice.open_source(config.Config(head="h")) is None
    without_driver = gpu_source_choice.open_source(config.Config(head="h", gpus=8))
    assert isinstance(without_driver, dcgm.Dcgm)
