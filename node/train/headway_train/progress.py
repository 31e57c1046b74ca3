"""`report(...)`: one datagram to the node's agent, which knows by the sender's cgroup which job it speaks for."""

from __future__ import annotations

import atexit
import json
import os
import socket
import time
from typing import Any

SOCKET = "/run/headway/report/socket"
LEAST_S = 0.05  # calls that come faster than this are gathered: the newest is sent
MOST_BYTES = 4096
MOST_MORE = 16  # further values in one report


def report(*, step: int | None = None, loss: Any = None, tokens: int | None = None, **more: Any) -> None:
    """Tells how the training stands; `tokens` are all it has trained on up to this step, from which the rate follows.

    `more` may hold further numbers (lr=..., grad_norm=...). Only rank 0 speaks. It never waits, never raises, and does
    nothing where no agent listens. A loss that is still a tensor on a GPU has to be waited for: hand in `loss.item()`
    where you have it anyway, or call this only every few steps.
    """
    try:
        _sender.take({"step": step, "loss": loss, "tokens": tokens, **more})
    except Exception:  # a training must never end because of its report
        pass


def saved(stalled_s: float) -> None:
    """A checkpoint was saved, for which the training stood still so long. Goes along with every further report."""
    _sender.saves += 1
    _sender.stalled_s += stalled_s


def default_socket() -> str:
    return os.environ.get("HEADWAY_REPORT_SOCKET", SOCKET)


class _Sender:
    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._sent = 0.0
        self._held: dict[str, Any] | None = None
        self._began = round(time.time(), 3)  # a training that was started again is told from one that just goes on
        self.saves = 0
        self.stalled_s = 0.0

    def take(self, values: dict[str, Any]) -> None:
        if int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0) != 0:
            return
        # Without its graph: a value that is held must not keep the memory of a whole step.
        self._held = {name: value.detach() if hasattr(value, "detach") else value for name, value in values.items()}
        self._held = {"run_began": self._began, **self._held}
        if self.saves:
            self._held |= {"checkpoints": self.saves, "checkpoints_s": round(self.stalled_s, 3)}
        if time.monotonic() - self._sent >= LEAST_S:
            self.send()

    def send(self) -> None:
        values, self._held = self._held, None
        if values is None:
            return
        self._sent = time.monotonic()
        data = encode(values)
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        self._socket.sendto(data, default_socket())

    def last(self) -> None:
        try:
            self.send()
        except Exception:  # as in report
            pass


def encode(values: dict[str, Any]) -> bytes:
    """One JSON object: whole numbers for step and tokens, numbers for the rest; what is no number is left out.
    Raises ValueError when it is longer than MOST_BYTES."""
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
