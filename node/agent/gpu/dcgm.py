"""Reads GPUs from a DCGM exporter that runs on this machine, where the driver's library can't be loaded."""

from __future__ import annotations

import re
import socket

from agent.gpu.gpu_metrics import FIELDS
from agent.gpu.gpu_source import Gpu

ADDRESS = ("127.0.0.1", 9400)
_MOST_BYTES = 4 << 20
_LINE = re.compile(r"([A-Za-z_]\w*)\{([^}]*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Dcgm:
    """A `Source` that reads the metrics of the DCGM exporter at `address`."""

    simulated = False
    driver = ""
    cuda = 0

    def __init__(self, address: tuple[str, int] = ADDRESS) -> None:
        self._address = address

    def read(self) -> list[Gpu]:
        """Returns all GPUs. Raises OSError when the exporter does not answer."""
        return parse_metrics(self._get())

    def _get(self) -> str:
        with socket.create_connection(self._address, timeout=5) as link:
            link.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
            pieces, size = [], 0
            while size < _MOST_BYTES and (piece := link.recv(65536)):
                pieces.append(piece)
                size += len(piece)
        head, _, body = b"".join(pieces).partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise OSError(f"the DCGM exporter answers {head[:60]!r}")
        return body.decode(errors="replace")


def parse_metrics(text: str) -> list[Gpu]:
    """Returns the GPUs in the exporter's text, by index. MIG instances are skipped."""
    found: dict[int, Gpu] = {}
    for name, labels, value in _LINE.findall(text):
        values = dict(_LABEL.findall(labels))
        if name not in FIELDS or not values.get("gpu", "").isdigit() or values.get("GPU_I_ID"):
            continue
        minor = re.fullmatch(r"nvidia(\d+)", values.get("device", ""))
        index = int(minor[1]) if minor else int(values["gpu"])
        gpu = found.setdefault(
            index, Gpu(index, values.get("UUID", ""), values.get("modelName", ""), values.get("pci_bus_id", ""))
        )
        try:
            gpu.figures[name] = float(value)
        except ValueError:
            continue
    return [found[index] for index in sorted(found)]
