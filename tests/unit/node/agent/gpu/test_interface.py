"""NVML, a DCGM exporter and the simulation deliver GPU readings through one interface, and the agent exports them for
Prometheus."""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import socket
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from agent import config
from agent.checks import runner
from agent.gpu import dcgm, factory, interface, job_gpus, nvml, simulated
from agent.metrics import exporter
from headway.render.system import agent_config
from tests.support.clusters.render_cases import gpu_cluster, site_of

PLAN = config.Config(
    head="10.0.0.1",
    simulated=True,
    gpus=4,
    gpu_type="h100",
    product="NVIDIA H100 80GB HBM3",
    gpu_memory_mib=81559,
    expects={"nvlinks": 18},
)


class FakeNvml:
    """libnvidia-ml of a machine with two GPUs; answers by way of pointers as the library does. `lost`: GPUs that fell
    off. `events`: (code, GPU, XID) that the next waits for an event return. A call that the test did not register is an error."""

    def __init__(self) -> None:
        self.lost: set[int] = set()
        self.events: list[tuple[int, int, int]] = []
        self.numbers: dict[str, Any] = {
            "nvmlDeviceGetPowerUsage": 345_600,
            "nvmlDeviceGetTotalEnergyConsumption": 9_000_000,
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
            "nvmlDeviceGetCurrPcieLinkWidth": 8,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetPcieReplayCounter": 3,
            "nvmlDeviceGetPersistenceMode": 1,
        }

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*words: Any) -> int:
            return self._answer(name, words)

        if not name.startswith("nvml"):
            raise AttributeError(name)
        return call

    def _answer(self, name: str, words: tuple[Any, ...]) -> int:
        out = getattr(words[-1], "_obj", None)
        if name == "nvmlSystemGetDriverVersion":
            words[0].value = b"570.1"
        elif name == "nvmlDeviceGetCount_v2":
            out.value = 2
        elif name == "nvmlDeviceGetHandleByIndex_v2":
            out.value = words[0].value + 100
        elif name == "nvmlEventSetCreate":
            out.value = 1
        elif name == "nvmlEventSetWait_v2":
            code, gpu, xid = self.events.pop(0)
            event = words[1]._obj
            event.device, event.kind, event.data = gpu + 100, nvml.XID_EVENT, xid
            return code
        elif words[0].value - 100 in self.lost:
            return int(nvml.GPU_IS_LOST)
        elif name == "nvmlDeviceGetMinorNumber":
            out.value = words[0].value - 100
        elif name == "nvmlDeviceGetUUID":
            words[1].value = b"GPU-%d" % words[0].value
        elif name == "nvmlDeviceGetName":
            words[1].value = b"NVIDIA H100"
        elif name == "nvmlDeviceGetPciInfo_v3":
            out.bus_id = b"00000000:%d:00.0" % (words[0].value - 40) if words[0].value > 100 else b"00000000:3B:00.0"
        elif name == "nvmlDeviceRegisterEvents":
            assert words[1].value == nvml.XID_EVENT
        elif name == "nvmlDeviceGetUtilizationRates":
            out.gpu, out.memory = 97, 41
        elif name == "nvmlDeviceGetMemoryInfo":
            out.total, out.used, out.free = 80 << 30, 60 << 30, 20 << 30
        elif name == "nvmlDeviceGetClockInfo":
            out.value = {1: 1755, 2: 2619}[words[1].value]
        elif name == "nvmlDeviceGetTotalEccErrors":
            out.value = {0: 12, 1: 2}[words[1].value]
        elif name == "nvmlDeviceGetRemappedRows":
            for pointer, value in zip(words[1:], (1, 2, 1, 0), strict=True):
                pointer._obj.value = value
        elif name == "nvmlDeviceGetNvLinkState":
            if words[1].value >= 4:
                return 3
            out.value = int(words[1].value != 2)
        elif name == "nvmlDeviceGetFieldValues":
            assert out.field == 82
            out.value = 77
        elif name in self.numbers:
            out.value = self.numbers[name]
        else:
            raise AssertionError(f"the test did not register {name}")
        return 0


def test_nvml_values_use_dcgm_names_and_units() -> None:
    first, second = nvml.Nvml(FakeNvml()).read()
    assert (first.index, first.uuid, first.name, first.bus) == (0, "GPU-100", "NVIDIA H100", "00000000:3B:00.0")
    assert second.index == 1
    assert first.figures == {
        "DCGM_FI_DEV_GPU_UTIL": 97,
        "DCGM_FI_DEV_MEM_COPY_UTIL": 41,
        "DCGM_FI_DEV_FB_USED": 61440,
        "DCGM_FI_DEV_FB_FREE": 20480,
        "DCGM_FI_DEV_POWER_USAGE": 345.6,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 9_000_000,
        "DCGM_FI_DEV_GPU_TEMP": 61,
        "DCGM_FI_DEV_MEMORY_TEMP": 77,
        "DCGM_FI_DEV_SM_CLOCK": 1755,
        "DCGM_FI_DEV_MEM_CLOCK": 2619,
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 12,
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 2,
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 1,
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 2,
        "DCGM_FI_DEV_ROW_REMAP_PENDING": 1,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 0x40,
        "DCGM_FI_DEV_PCIE_LINK_WIDTH": 8,
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16,
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 3,
        "headway_gpu_nvlinks_active": 3,
        "headway_gpu_persistence_mode": 1,
    }


def test_gpu_that_fell_off_the_bus_is_listed_as_lost() -> None:
    library = FakeNvml()
    source = nvml.Nvml(library)
    source.read()
    library.lost = {1}
    first, second = source.read()
    assert not first.lost
    assert (second.lost, second.index, second.uuid, second.figures) == (True, 1, "GPU-101", {})


def test_unsupported_nvml_value_is_left_out() -> None:
    library = FakeNvml()
    library.nvmlDeviceGetTotalEnergyConsumption = lambda *_: 3  # type: ignore[attr-defined]  # not supported
    (first, _) = nvml.Nvml(library).read()
    assert "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" not in first.figures
    assert first.figures["DCGM_FI_DEV_GPU_TEMP"] == 61


def test_ctypes_structures_have_the_sizes_of_nvml_h() -> None:
    sizes = {"_Utilization": 8, "_Memory": 24, "_Pci": 68, "_FieldValue": 40, "_Event": 32}
    assert {name: ctypes.sizeof(getattr(nvml, name)) for name in sizes} == sizes


EXPORTER = """\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a",pci_bus_id="00000000:3B:00.0",device="nvidia1",modelName="NVIDIA H100"} 1755
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",pci_bus_id="00000000:3B:00.0",device="nvidia1",modelName="NVIDIA H100"} 61
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",device="nvidia0",modelName="NVIDIA H100"} 44
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",device="nvidia0",modelName="NVIDIA H100",GPU_I_ID="3"} 99
SOMETHING_ELSE{gpu="1"} 5
"""


def test_dcgm_source_parses_the_exporter_metrics() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ears:

        def answer() -> None:
            link, _ = ears.accept()
            with link:
                link.recv(4096)
                link.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + EXPORTER.encode())

        threading.Thread(target=answer, daemon=True).start()
        first, second = dcgm.Dcgm(ears.getsockname()).read()
    assert (first.index, first.uuid, first.figures) == (0, "GPU-b", {interface.TEMP: 44})
    assert (second.index, second.bus, second.figures) == (
        1,
        "00000000:3B:00.0",
        {interface.SM_CLOCK: 1755, interface.TEMP: 61},
    )


class Place:
    """A machine with simulated GPUs: devices, cgroups and what jobs were given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("dev", "faults", "held"):
            (folder / name).mkdir()
        for index in range(4):
            (folder / "dev" / f"nvidia{index}").touch()
        self.source = simulated.Simulated(
            PLAN,
            faults=str(folder / "faults"),
            devices=str(folder / "dev"),
            cgroups=str(folder / "cgroup"),
            jobs=str(folder / "held"),
            host="lab-1-1",
        )

    def job(self, number: int, gpus: str, processor_s: float, memory_mib: int, *, unified: bool = False) -> None:
        mine = self.folder / "held" / str(number)
        mine.mkdir(exist_ok=True)
        (mine / "gpus").write_text(f"{gpus}\n")
        if unified:
            place = self.folder / f"cgroup/system.slice/slurmstepd.scope/job_{number}"
            place.mkdir(parents=True, exist_ok=True)
            (place / "cpu.stat").write_text(f"usage_usec {processor_s * 1e6:.0f}\nuser_usec 1\n")
            (place / "memory.current").write_text(str(memory_mib << 20))
            return
        for controller, name, value in (
            ("cpuacct", "cpuacct.usage", processor_s * 1e9),
            ("memory", "memory.usage_in_bytes", memory_mib << 20),
        ):
            place = self.folder / f"cgroup/{controller}/slurm_lab-1-1/uid_1000/job_{number}"
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(f"{value:.0f}\n")


@pytest.mark.parametrize("unified", [False, True])
def test_simulated_gpus_show_the_load_of_their_job(tmp_path: Path, unified: bool) -> None:
    place = Place(tmp_path)
    place.job(12, "1,2", 100.0, 2000, unified=unified)
    place.source.read(now=50.0)
    place.job(12, "1,2", 103.0, 2000, unified=unified)
    idle, first, second, _ = place.source.read(now=55.0)
    assert [one.figures[interface.UTIL] for one in (idle, first, second)] == [0, 60, 60]
    assert (idle.figures[interface.FB_USED], first.figures[interface.FB_USED]) == (0, 512 + 1000)
    assert first.figures[interface.FB_FREE] == 81559 - 1512
    for name in (interface.POWER, interface.TEMP, interface.SM_CLOCK, interface.ENERGY):
        assert first.figures[name] > idle.figures[name], name
    assert first.name == "NVIDIA H100 80GB HBM3 (simulated)"
    place.job(12, "1,2", 103.0, 2000, unified=unified)
    assert place.source.read(now=60.0)[1].figures[interface.UTIL] == 0, "a job that stands still"
    assert first.uuid != second.uuid


def test_simulated_gpu_faults_are_read_from_files(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for name, text in (
        ("gpu0-ecc", "2\n"), ("gpu1-throttle", "thermal"), ("gpu2-lost", ""), ("gpu3-pcie", "8"),
        ("gpu3-nvlinks-down", "2"), ("gpu3-rows-pending", ""), ("nonsense", "x"),
    ):  # fmt: skip
        (tmp_path / "faults" / name).write_text(text)
    first, second, third, fourth = place.source.read(now=1.0)
    assert (first.figures[interface.DBE], second.figures[interface.DBE]) == (2, 0)
    assert (second.figures[interface.THROTTLE], second.figures[interface.TEMP]) == (0x40, 95)
    assert third.lost
    assert [fourth.figures[name] for name in (interface.PCIE_WIDTH, interface.NVLINKS, interface.ROWS_PENDING)] == [
        8,
        16,
        1,
    ]
    (tmp_path / "dev" / "nvidia3").unlink()
    assert place.source.read(now=2.0)[3].lost, "its device is gone"


def test_agent_reads_the_config_that_apply_writes(tmp_path: Path) -> None:
    cluster = gpu_cluster()
    place = tmp_path / "agent.json"
    place.write_text(agent_config.config(cluster, site_of(cluster), cluster.groups[0]))
    told = config.load(str(place))
    assert (told.head, told.simulated, told.oversubscribed_cpus, told.gpus) == ("10.87.3.10", True, True, 8)
    assert [(mount.path, mount.read_only) for mount in told.mounts] == [
        ("/home", False), ("/scratch", False), ("/datasets/tiny", True), ("/environments", True),
    ]  # fmt: skip
    assert told.kernel_log == agent_config.SIMULATED_LOG
    assert (runner.FOLDER, runner.UNFIT, runner.LOOKED) == ("/run/headway", "unfit", "looked")
    assert (agent_config.UNFIT, agent_config.LOOKED) == ("/run/headway/unfit", "/run/headway/looked")
    written = {*json.loads(place.read_text())}
    of_others = {
        "other_heads",
        "first",
        "first_head",
        "cluster",
        "state",
        "fabric",
        "mig",
    }  # of heads, of machines one owns, and of nodes with MIG instances
    assert written == {field.name for field in fields(config.Config)} - of_others


def test_event_of_a_gpu_that_fell_off_the_bus_has_its_address() -> None:
    library = FakeNvml()
    wait = nvml.Nvml(library).wait_for_event()
    library.lost, library.events = {1}, [(0, 1, 79), (nvml.TIMEOUT, 0, 0)]
    assert wait(5000) == ("00000000:61:00.0", 79)
    assert wait(5000) is None


def test_gpu_that_is_lost_already_does_not_keep_the_others_from_being_watched() -> None:
    library = FakeNvml()
    source = nvml.Nvml(library)
    library.lost, library.events = {0}, [(0, 1, 48)]
    assert source.wait_for_event()(5000) == ("00000000:61:00.0", 48)


def test_wait_for_an_event_that_nvml_refuses_is_an_error() -> None:
    library = FakeNvml()
    wait = nvml.Nvml(library).wait_for_event()
    library.events = [(nvml.GPU_IS_LOST, 0, 0)]
    with pytest.raises(OSError, match="nvmlEventSetWait_v2"):
        wait(5000)


def test_source_is_opened_by_the_first_reading_that_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    library, opened = FakeNvml(), list[str]()

    def load(name: str) -> FakeNvml:
        opened.append(name)
        if len(opened) == 1:
            raise OSError("the driver is not loaded yet")
        return library

    monkeypatch.setattr(nvml.ctypes, "CDLL", load)
    monkeypatch.setattr(dcgm, "ADDRESS", ("127.0.0.1", 1))
    source = factory.LateSource(config.Config(head="h", gpus=2))
    assert (source.opened, source.driver, opened) == (None, "", []), "a broken driver may block for ever"
    with pytest.raises(OSError, match="refused"):
        source.read()
    assert [gpu.index for gpu in source.read()] == [0, 1]
    assert [gpu.index for gpu in source.read()] == [0, 1]
    assert (source.driver, len(opened)) == ("570.1", 2)


def test_open_source_chooses_simulation_dcgm_or_no_gpus() -> None:
    assert factory.open_source(PLAN).simulated
    assert factory.open_source(config.Config(head="h")) is None
    without_driver = factory.open_source(config.Config(head="h", gpus=8))
    assert isinstance(without_driver, dcgm.Dcgm)


LINE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')


def text_of(**more: Any) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Parsed as strictly as Prometheus does; each name's lines have to stand together."""
    one = interface.Gpu(
        3,
        "GPU-a",
        'NVIDIA "H100"',
        "00000000:3B:00.0",
        {interface.UTIL: 97, interface.ENERGY: 123456789.0, interface.POWER: 345.6},
    )
    known: dict[str, Any] = {
        "host": "lab-1-1", "driver": "570.1", "simulated": False, "gpus": [one], "jobs": [job_gpus.Job(12, (3,))],
        "xids": {3: 79}, "figures": [("node_load1", {}, 1.5)], "checks": {"gpu_count": 2},
    }  # fmt: skip
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    last = ""
    for line in exporter.metrics_text(**{**known, **more}).decode().splitlines():
        if line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        assert match, line
        name, labels, value = match.groups()
        assert name == last or name not in found, f"{name} is scattered"
        last = name
        found.setdefault(name, []).append((dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")), float(value)))
    return found


def test_metrics_have_the_names_and_labels_of_dcgm_dashboards() -> None:
    found = text_of()
    ((labels, value),) = found["DCGM_FI_DEV_GPU_UTIL"]
    assert value == 97
    assert labels == {
        "gpu": "3",
        "UUID": "GPU-a",
        "pci_bus_id": "00000000:3B:00.0",
        "device": "nvidia3",
        "modelName": 'NVIDIA \\"H100\\"',
        "Hostname": "lab-1-1",
        "DCGM_FI_DRIVER_VERSION": "570.1",
        "hpc_job": "12",
    }
    assert found["DCGM_FI_DEV_XID_ERRORS"][0][1] == 79
    assert found["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"][0][1] == 123456789
    assert found["headway_check_state"] == [({"check": "gpu_count"}, 2.0)]
    assert found["node_load1"] == [({}, 1.5)]


def test_metrics_label_simulated_gpus_and_omit_the_job_of_free_ones() -> None:
    ((labels, _),) = text_of(simulated=True, jobs=[])["DCGM_FI_DEV_GPU_UTIL"]
    assert labels["simulated"] == "1"
    assert "hpc_job" not in labels


@pytest.fixture
def giver() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as ears:
        thread = exporter.MetricsServer("127.0.0.1", lambda: b"up 1\n")
        serving = threading.Thread(target=_until_closed, args=(thread, ears), daemon=True)
        serving.start()
        yield ears.getsockname()
        ears.shutdown(socket.SHUT_RDWR)  # the thread waits in accept, and closing alone doesn't wake it
        serving.join(20)


def _until_closed(giver: exporter.MetricsServer, ears: socket.socket) -> None:
    with contextlib.suppress(OSError):
        giver.serve(ears)


def asked(address: Any, request: bytes) -> bytes:
    with socket.create_connection(address, timeout=60) as link:
        link.sendall(request)
        pieces = []
        while piece := link.recv(4096):
            pieces.append(piece)
    return b"".join(pieces)


def test_metrics_server_answers_404_to_other_or_invalid_requests(giver: Any) -> None:
    for request in (
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /etc/passwd HTTP/1.1\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\n\r\n",
    ):
        assert asked(giver, request).startswith(b"HTTP/1.1 404"), request
    with socket.create_connection(giver, timeout=60):  # says nothing and goes
        pass
    answer = asked(giver, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\nup 1\n")
