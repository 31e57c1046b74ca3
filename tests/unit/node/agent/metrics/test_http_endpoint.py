"""The agent's metrics for Prometheus."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from typing import Any

import pytest

from agent.gpu import gpu_metrics, gpu_source, job_gpus
from agent.metrics import http_endpoint

LINE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')


def text_of(**more: Any) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Parsed as strictly as Prometheus does; each name's lines have to stand together."""
    one = gpu_source.Gpu(
        3,
        "GPU-a",
        'NVIDIA "H100"',
        "00000000:3B:00.0",
        {gpu_metrics.UTIL: 97, gpu_metrics.ENERGY: 123456789.0, gpu_metrics.POWER: 345.6},
    )
    known: dict[str, Any] = {
        "host": "lab-1-1", "driver": "570.1", "simulated": False, "gpus": [one], "jobs": [job_gpus.GpuJob(12, (3,))],
        "xids": {3: 79}, "figures": [("node_load1", {}, 1.5)], "checks": {"gpu_count": 2},
    }  # fmt: skip
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    last = ""
    for line in http_endpoint.metrics_text(**{**known, **more}).decode().splitlines():
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
        thread = http_endpoint.MetricsServer("127.0.0.1", lambda: b"up 1\n")
        serving = threading.Thread(target=_until_closed, args=(thread, ears), daemon=True)
        serving.start()
        yield ears.getsockname()
        ears.shutdown(socket.SHUT_RDWR)  # the thread waits in accept, and closing alone doesn't wake it
        serving.join(20)


def _until_closed(giver: http_endpoint.MetricsServer, ears: socket.socket) -> None:
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
