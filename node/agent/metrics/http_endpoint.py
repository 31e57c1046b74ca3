"""Serves /metrics for Prometheus."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from agent.gpu.gpu_metrics import FIELDS, XID
from agent.gpu.gpu_source import Gpu
from agent.gpu.job_gpus import GpuJob
from agent.log import log
from agent.metrics.host import Figure

PORT = 6822
_PATIENCE_S = 2.0
_LEVELS = "Result of a check: 0 ok, 1 warn, 2 bad"


def metrics_text(
    host: str,
    driver: str,
    simulated: bool,
    gpus: Iterable[Gpu],
    jobs: Iterable[GpuJob],
    xids: Mapping[int, int],
    figures: Iterable[Figure],
    checks: Mapping[str, int],
) -> bytes:
    """Returns the metrics in Prometheus' text format. `xids`: GPU -> its last error. `checks`: check -> 0 ok, 1 warn, 2
    bad. Simulated GPUs carry the label simulated="1"."""
    lines: list[str] = []
    owner = {index: job.number for job in jobs for index in job.gpus}
    labelled = [(_labels(_of(gpu, host, driver, owner.get(gpu.index), simulated)), gpu) for gpu in gpus]
    for name, (kind, what) in FIELDS.items():
        rows = []
        for labels, gpu in labelled:
            value = xids.get(gpu.index, 0) if name == XID else gpu.figures.get(name)
            if value is not None:
                rows.append(f"{name}{labels} {value:g}" if abs(value) < 1e5 else f"{name}{labels} {value:.0f}")
        if rows:
            lines += [f"# HELP {name} {what}.", f"# TYPE {name} {kind}", *rows]
    if labelled:
        lines += ["# HELP headway_gpu_lost Whether a GPU no longer answers.", "# TYPE headway_gpu_lost gauge"]
        lines += [f"headway_gpu_lost{labels} {int(gpu.lost)}" for labels, gpu in labelled]
    lines += [f"# HELP headway_check_state {_LEVELS}.", "# TYPE headway_check_state gauge"]
    lines += [f"headway_check_state{_labels({'check': name})} {level}" for name, level in checks.items()]
    named = ""
    for name, labels, value in figures:
        if name != named:
            named = name
            lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
        lines.append(f"{name}{_labels(labels)} {value!r}")
    return ("\n".join(lines) + "\n").encode()


def _of(gpu: Gpu, host: str, driver: str, job: int | None, simulated: bool) -> dict[str, str]:
    labels = {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": gpu.bus,
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.name,
        "Hostname": host,
        "DCGM_FI_DRIVER_VERSION": driver,
    }
    if job is not None:
        labels["hpc_job"] = str(job)
    if simulated:
        labels["simulated"] = "1"
    return labels


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_quoted(value)}"' for key, value in labels.items()) + "}"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsServer(threading.Thread):
    """Answers GET /metrics on one address, one client after the other. The text is prepared beforehand, so no client
    waits long."""

    def __init__(self, address: str, ready: Callable[[], bytes], port: int = PORT) -> None:
        super().__init__(daemon=True)
        self._place = (address, port)
        self._ready = ready

    def run(self) -> None:
        while True:
            try:
                with socket.create_server(self._place, backlog=16) as ears:
                    self.serve(ears)
            except OSError as error:  # the network may be configured after the agent has started
                log(f"{self._place[0]}:{self._place[1]}: {error}")
            time.sleep(2)

    def serve(self, ears: socket.socket) -> None:
        """Answers clients for ever."""
        while True:
            link, _ = ears.accept()
            with link:
                try:
                    link.settimeout(_PATIENCE_S)
                    self._answer(link)
                except OSError:
                    continue

    def _answer(self, link: socket.socket) -> None:
        received, ends = b"", time.monotonic() + _PATIENCE_S
        while b"\r\n\r\n" not in received and len(received) < 8192 and time.monotonic() < ends:
            piece = link.recv(4096)
            if not piece:
                return
            received += piece
        words = received.split(b"\r\n")[0].split(b" ")
        found = words[:1] == [b"GET"] and words[1:2] and words[1].split(b"?")[0] == b"/metrics"
        body = self._ready() if found else b"there is /metrics here\n"
        status = b"200 OK" if found else b"404 Not Found"
        kind = b"text/plain; version=0.0.4; charset=utf-8"
        head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        link.sendall(head % (status, kind, len(body)) + body)
