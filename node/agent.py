"""Headway's agent. On a node it takes trainings' reports; on the head it keeps them where the server reads them.

    training --datagram--> /run/headway/report/socket --> agent of the node --UDP, sealed by MUNGE--> agent of the head
             --> /var/lib/headway/reports/JOB.jsonl --> the server, along with the logs it reads over SSH anyway

- Who speaks: the kernel names the sender's process with each datagram, and its cgroup, which only Slurm makes, the job. A
  report says nothing about the job it is for, so nobody can report for another's. It works from inside a container as
  well, where the folder of the socket is bound in (the folder, not the socket: that is a new one after a restart).
- How much: the newest report of a job counts. A node sends those that changed every FLUSH_S, once more in case the first
  got lost, and nothing while nothing changes. Only ranks 0 report, so a cluster sends about one datagram for each running
  training and flush, however many nodes it has; the server opens no connection to any node.
- Nothing waits for it: a training whose agent is away loses reports, nothing else. An agent that is killed has lost what
  came in the last FLUSH_S; what the head has is on disk. There is nothing to repair.
- MUNGE is the trust that the machines of a cluster already share: the head takes what root on one of them sealed, once.

    agent.py node HEAD          agent.py head ADDRESS

Only the standard library, and libmunge, which Slurm's own plugins need. Python 3.10 or newer.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SOCKET = "/run/headway/report/socket"
REPORTS = "/var/lib/headway/reports"
PORT = 6821
FLUSH_S = 2.0
RATE_OVER_S = 30.0  # tokens a second are a mean over the last so many
FORGET_S = 600.0  # a job that has said nothing for so long is forgotten by its node
MOST_BYTES = 4096
MOST_SENT = 32 * 1024  # bytes in one message to the head: sealed, it stays below the 64 KiB that UDP takes
AT_ONCE = 200  # datagrams taken in one go, then a breath: a flood costs its sender, not the machine
BREATH_S = 0.05
MOST_LINES = 4000  # of a job's file; then every other line goes
KEEP_S = 14 * 86400
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]{0,63}")
# v1: .../slurm/uid_1000/job_12/step_0/...   v2: .../system.slice/[NODE_]slurmstepd.scope/job_12/step_0/...
_CGROUP = re.compile(r"(?:/slurm(?:_[^/]+)?/uid_\d+|/system\.slice/(?:[^/]+_)?slurmstepd\.scope)/job_(\d+)(?:/|$)")


# --- who speaks


def job_of(pid: int, uid: int, proc: str = "/proc") -> int | None:
    """The Slurm job that this process of `uid` belongs to; None when it belongs to none, or is gone."""
    try:
        if os.stat(f"{proc}/{pid}").st_uid != uid:  # another process has its number meanwhile
            return None
        with open(f"{proc}/{pid}/cgroup") as file:
            mine = _paths(file.read())
        with open(f"{proc}/1/cgroup") as file:
            roots = _paths(file.read())
    except OSError:
        return None
    for controller, path in mine.items():
        # A person may have a part of the tree of their own and name folders in it as they like: only what stands at
        # the top of the machine's tree was made by root.
        root = roots.get(controller, "/").removesuffix("/init.scope").removesuffix("/")
        found = _CGROUP.match(path.removeprefix(root))
        if found:
            return int(found[1])
    return None


def _paths(text: str) -> dict[str, str]:
    rows = (line.split(":", 2) for line in text.splitlines())
    return {row[1]: row[2] for row in rows if len(row) == 3}


def parse(data: bytes) -> dict[str, Any] | None:
    """What a training said: whole numbers for step and tokens, finite numbers for the rest; None for nonsense. A loss
    that is no number any more is kept as "nan": people want to see just that."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    values: dict[str, Any] = {}
    for name, value in list(told.items())[:20]:
        if not _NAME.fullmatch(name) or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if name in ("step", "tokens"):
            if isinstance(value, int) and 0 <= value < 2**63:
                values[name] = value
        elif isinstance(value, int) and abs(value) >= 2**63:
            continue
        elif math.isfinite(value):
            values[name] = value
        elif name == "loss":
            values[name] = "nan"
    return values or None


# --- on a node


@dataclass
class Spoken:
    """The newest report of one job, and what its rate follows from."""

    values: dict[str, Any] = field(default_factory=dict)
    at: float = 0.0  # of the machine's own clock that never goes back
    left: int = 0  # times it is still to be sent
    number: int = 0
    _tokens: deque[tuple[float, int]] = field(default_factory=deque)

    def take(self, values: dict[str, Any], now: float) -> None:
        self.values, self.at, self.left = values, now, 2
        self.number += 1
        tokens = values.get("tokens")
        if tokens is None:
            return
        seen = self._tokens
        if seen and tokens < seen[-1][1]:  # went on from a checkpoint
            seen.clear()
        if not seen or now - seen[-1][0] >= RATE_OVER_S / 60:
            seen.append((now, tokens))
        while now - seen[0][0] > RATE_OVER_S and len(seen) > 2:
            seen.popleft()

    @property
    def tokens_per_s(self) -> float | None:
        if len(self._tokens) < 2:
            return None
        (began, first), (ended, last) = self._tokens[0], self._tokens[-1]
        return round((last - first) / (ended - began), 3) if ended > began else None


class Node:
    """Takes datagrams, and hands on what is new every FLUSH_S."""

    def __init__(self, send: Callable[[dict[str, Any]], None], who: Callable[[int, int], int | None] = job_of) -> None:
        self._send = send
        self._who = who
        self._run = os.urandom(4).hex()  # an agent that was started again counts from one again
        self.jobs: dict[int, Spoken] = {}

    def take(self, data: bytes, pid: int, uid: int, now: float) -> None:
        job = self._who(pid, uid)
        values = parse(data) if job is not None and len(data) <= MOST_BYTES else None
        if job is not None and values is not None:
            self.jobs.setdefault(job, Spoken()).take(values, now)

    def flush(self, now: float) -> None:
        for job in [job for job, spoken in self.jobs.items() if now - spoken.at > FORGET_S]:
            del self.jobs[job]
        rows: dict[str, Any] = {}
        size = 0
        for job, spoken in self.jobs.items():
            if not spoken.left:
                continue
            spoken.left -= 1
            row = {"n": f"{self._run}.{spoken.number}", **spoken.values}
            if spoken.tokens_per_s is not None:
                row["tokens_per_s"] = spoken.tokens_per_s
            size += len(json.dumps(row))
            if rows and size > MOST_SENT:
                self._send({"jobs": rows})
                rows, size = {}, len(json.dumps(row))
            rows[str(job)] = row
        if rows:
            self._send({"jobs": rows})


def serve_node(head: str) -> None:
    os.makedirs(os.path.dirname(SOCKET), mode=0o755, exist_ok=True)
    if os.path.lexists(SOCKET):
        os.unlink(SOCKET)
    ears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ears.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    ears.bind(SOCKET)
    os.chmod(SOCKET, 0o666)  # everybody may speak; who they are, the kernel says
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    munge = Munge()

    def send(message: dict[str, Any]) -> None:
        try:
            out.sendto(munge.seal(json.dumps(message).encode()), (head, PORT))
        except OSError as error:  # the head is away, or MUNGE is: the next report is a better one
            say(f"not sent: {error}")

    node = Node(send)
    due = time.monotonic() + FLUSH_S
    while True:
        now = time.monotonic()
        if now >= due:
            node.flush(now)
            due = now + FLUSH_S
        if not select.select([ears], [], [], due - now if node.jobs else None)[0]:
            continue
        for _ in range(AT_ONCE):
            try:
                data, ancillary, _, _ = ears.recvmsg(MOST_BYTES + 1, socket.CMSG_SPACE(12), socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            for level, kind, body in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                    pid, uid, _ = struct.unpack("iII", body[:12])
                    node.take(data, pid, uid, time.monotonic())
        time.sleep(BREATH_S)


# --- on the head


class Head:
    """Keeps each job's reports as lines of JSON, the newest last, at most MOST_LINES of them."""

    def __init__(self, folder: str = REPORTS) -> None:
        self._folder = folder
        self._lines: dict[int, int] = {}
        self._numbers: dict[int, str] = {}
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def take(self, data: bytes, at: float) -> None:
        """One message of a node's agent, whose seal was looked at."""
        try:
            jobs = json.loads(data)["jobs"]
            rows = [(int(job), str(values.pop("n")), values) for job, values in jobs.items()]
        except (ValueError, KeyError, TypeError, AttributeError):
            say("a message that is none of ours")
            return
        for job, number, values in rows:
            if self._numbers.get(job) != number:
                self._numbers[job] = number
                self._add(job, {"t": round(at, 1), **values})

    def _add(self, job: int, values: dict[str, Any]) -> None:
        path = f"{self._folder}/{job}.jsonl"
        if job not in self._lines:
            self._lines[job] = len(_whole_lines(path))
        with open(path, "a") as file:
            file.write(json.dumps(values) + "\n")
        self._lines[job] += 1
        if self._lines[job] > MOST_LINES:
            lines = _whole_lines(path)
            kept = [*lines[:-1:2], lines[-1]]
            with open(f"{path}.new", "w") as file:
                file.writelines(kept)
            os.replace(f"{path}.new", path)
            self._lines[job] = len(kept)

    def forget_old(self, now: float) -> None:
        """Removes what no job has added to for KEEP_S, and from memory what none has for a day."""
        for name in os.listdir(self._folder):
            path = f"{self._folder}/{name}"
            age_s = now - os.stat(path).st_mtime
            if age_s > KEEP_S:
                os.unlink(path)
            job = name.removesuffix(".jsonl")
            if age_s > 86400 and job.isdigit():
                self._lines.pop(int(job), None)
                self._numbers.pop(int(job), None)


def _whole_lines(path: str) -> list[str]:
    """A line that a kill cut short is left out; the next is put after a line end of its own."""
    try:
        with open(path, "r+") as file:
            lines = file.readlines()
            if lines and not lines[-1].endswith("\n"):
                lines.pop()
                file.truncate(sum(len(line.encode()) for line in lines))
            return lines
    except FileNotFoundError:
        return []


def serve_head(address: str) -> None:
    ears = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ears.bind((address, PORT))
    munge = Munge()
    head = Head()
    due = 0.0
    while True:
        if time.monotonic() >= due:
            head.forget_old(time.time())
            due = time.monotonic() + 3600
        if not select.select([ears], [], [], 3600)[0]:
            continue
        data, (sender, _) = ears.recvfrom(65535)
        try:
            text, uid = munge.open(data)
        except OSError as error:
            say(f"from {sender}: {error}")
            time.sleep(BREATH_S)  # MUNGE has to work for each: whoever sends nonsense shall not keep it busy
            continue
        if uid != 0:
            say(f"from {sender}: sealed by uid {uid}, not by root")
            continue
        head.take(text, time.time())


class Munge:
    """Seals and opens with the key that all machines of the cluster share."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libmunge.so.2")
        self._library.munge_strerror.restype = ctypes.c_char_p
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = [ctypes.c_void_p]

    def seal(self, data: bytes) -> bytes:
        """Raises OSError when munged does not answer."""
        sealed = ctypes.c_void_p()
        self._check(self._library.munge_encode(ctypes.byref(sealed), None, data, len(data)))
        text = ctypes.string_at(sealed)
        self._free(sealed)
        return text

    def open(self, sealed: bytes) -> tuple[bytes, int]:
        """(data, uid of who sealed it). Raises OSError for what is forged, too old or seen before."""
        data, length = ctypes.c_void_p(), ctypes.c_int()
        uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
        refs = [ctypes.byref(one) for one in (data, length, uid, gid)]
        code = self._library.munge_decode(sealed, None, *refs)
        # With some errors it hands the content out all the same.
        text = ctypes.string_at(data, length.value) if data.value else b""
        if data.value:
            self._free(data)
        self._check(code)
        return text, uid.value

    def _check(self, code: int) -> None:
        if code:
            raise OSError(f"MUNGE: {self._library.munge_strerror(code).decode()}")


def say(text: str) -> None:
    """To the journal, a line a second at most: what goes wrong may go wrong very often."""
    now = time.monotonic()
    if now - _said[0] >= 1:
        _said[0] = now
        print(text, file=sys.stderr, flush=True)


_said = [-1.0]


def main() -> None:
    role, value = sys.argv[1:]
    {"node": serve_node, "head": serve_head}[role](value)


if __name__ == "__main__":
    main()
