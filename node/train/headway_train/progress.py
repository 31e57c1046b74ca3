"""`report(...)` sends one datagram to the node's agent, which finds the job by the sender's cgroup: the newest step and loss
for the queue. `metrics_file` keeps all reported numbers."""

from __future__ import annotations

import atexit
import json
import os
import socket
import time
from typing import Any

from headway_train import metrics_file

SOCKET = "/run/headway/report/socket"
LEAST_S = 0.05  # least time between two datagrams; of several calls within this time the newest is sent
MOST_BYTES = 4096
MOST_MORE = 16  # additional values in one report
BEGAN = "HEADWAY_RUN_BEGAN"  # Unix seconds when `python3 -m headway_train` began this run, which reports too


def report(*, step: int | None = None, loss: Any = None, tokens: int | None = None, **more: Any) -> None:
    """Reports the training's progress. `tokens` counts all tokens up to this step; the agent computes the rate from it.

    `more` may contain further numbers (lr=..., grad_norm=...). Only rank 0 reports. In a job all numbers are kept, in a file
    that a thread writes (`metrics_file`). The call never raises and never waits for the agent or for storage. At most every
    LEAST_S it reads the values, and waits for the GPU if one is a tensor there."""
    try:
        _sender.add({"step": step, "loss": loss, "tokens": tokens, **more})
    except Exception:  # a training must never end because of its report
        pass


def send_newest(values: dict[str, Any]) -> None:
    """Sends values to the node's agent that are kept in the metrics file already."""
    _sender.add_newest(values)


def run_began() -> float:
    """Returns when this run of the training began, in Unix seconds."""
    return _sender.began


def saved(stalled_s: float) -> None:
    """Counts a saved checkpoint and the seconds that the training waited for it. Every further report includes them."""
    _sender.saves += 1
    _sender.stalled_s += stalled_s


def default_socket() -> str:
    """Returns the path of the agent's socket."""
    return os.environ.get("HEADWAY_REPORT_SOCKET", SOCKET)


class _Sender:
    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._sent = 0.0
        self._pending: dict[str, Any] | None = None
        # Another value shows that the training was restarted.
        self.began = float(os.environ.get(BEGAN) or round(time.time(), 3))
        self.saves = 0
        self.stalled_s = 0.0

    def add(self, values: dict[str, Any]) -> None:
        """Keeps the values, and sends them if the last datagram is at least LEAST_S old."""
        if int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0) != 0:
            return
        metrics_file.keep(values, self.began)
        self.add_newest(values)

    def add_newest(self, values: dict[str, Any]) -> None:
        """Does the same for the datagram alone."""
        # Detached, so that the kept tensors do not hold the autograd graph of a whole step in memory.
        self._pending = {name: value.detach() if hasattr(value, "detach") else value for name, value in values.items()}
        self._pending = {"run_began": self.began, **self._pending}
        if self.saves:
            self._pending |= {"checkpoints": self.saves, "checkpoints_s": round(self.stalled_s, 3)}
        if time.monotonic() - self._sent >= LEAST_S:
            self.send()

    def send(self) -> None:
        """Sends the kept values."""
        values, self._pending = self._pending, None
        if values is None:
            return
        self._sent = time.monotonic()
        data = encode(values)
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        self._socket.sendto(data, default_socket())

    def last(self) -> None:
        """Sends the kept values when the training ends; never raises."""
        try:
            self.send()
        except Exception:  # as in report
            pass


def encode(values: dict[str, Any]) -> bytes:
    """Returns the report as one JSON object: step and tokens as integers, other numbers as floats. Omits values that are
    not numbers. Raises ValueError if it is longer than MOST_BYTES."""
    known: dict[str, Any] = {}
    for name, value in values.items():
        if value is None or (len(known) >= MOST_MORE + 4):
            continue
        try:
            known[name] = int(value) if name in ("step", "tokens") else float(value)
        except (TypeError, ValueError, OverflowError):
            continue
    data = json.dumps(known).encode()
    if len(data) > MOST_BYTES:
        raise ValueError(f"a report of {len(data)} bytes is too long")
    return data


_sender = _Sender()
atexit.register(_sender.last)
