"""The agent of a head: receives the nodes' messages and stores them until the server has read them."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import re
import select
import socket
import time
from collections.abc import Callable
from typing import Any

from agent.config import Config
from agent.failover.leader import LeaderFile, LeaderMonitor
from agent.failover.takeover_recovery import TakeoverRecovery
from agent.failover.unreachable_first_head import FirstHeadMonitor
from agent.heartbeats import HEARTBEAT_S, HEARTBEATS_FILE, write_heartbeats
from agent.jobs.secret_server import SecretServer
from agent.log import log
from agent.lost_contact.key_change import UNREAD, key_change_begun
from agent.lost_contact.offline_responder import OfflineResponder
from agent.lost_contact.sender_limits import Sender, SenderLimits
from agent.marker_files import whole_lines
from agent.metrics.active_clock import ActiveClock
from agent.metrics.head import HeadSampler
from agent.metrics.http_endpoint import MetricsServer
from agent.munge import Munge

REPORTS = "/var/lib/headway/reports"
PORT = 6821
MOST_LINES = 4000  # lines in a job's file; when there are more, every second one is deleted
KEEP_S = 14 * 86400
FAULTS = "/var/lib/headway/faults.jsonl"
TURNS = "/run/headway/turns.jsonl"  # jobs that have just begun or ended on a node
CONTROLLER = "/run/slurmctld"
MOST_TURNS = 1_000_000  # bytes; then the file is deleted and begun again
HEARD_S = 5.0  # nodes receive the addresses of other nodes that sent a heartbeat within so long
MOST_OTHERS = 8
MISSED_KEPT_S = 30.0
# How long it stays unknown for how long a node was missed before its first message: a node that wakes up sends other messages,
# and then asks within a second (WAKE_ANSWER_S of node/agent/lost_contact/node_lease.py).
UNKNOWN_KEPT_S = 2.0
MOST_FAULTS = 4000  # lines in FAULTS; when there are more, the older half is deleted
_NODE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class NodeMessages:
    """Stores the nodes' messages: each job's reports as lines of JSON, the newest last, at most MOST_LINES of them;
    faults, check results and heartbeats."""

    def __init__(self, folder: str = REPORTS, faults: str = FAULTS, turns: str = TURNS) -> None:
        self._folder = folder
        self._turns_file = turns
        self._turns: dict[str, str] = {}  # node -> number of its last change
        self._faults_file = faults
        self._faults: dict[str, None] = {}  # ids of the lines in FAULTS, the oldest first
        self._checks: dict[tuple[str, str], tuple[Any, ...]] = {}  # (node, check) -> its last result
        for line in whole_lines(faults):
            message = json.loads(line)
            self._faults[message["id"]] = None
            if "check" in message:
                self._checks[message["node"], message["check"]] = _state_key(message)
        self.beats: dict[str, float] = {}  # node -> Unix time of its last message
        self._active: dict[str, float] = {}  # node -> when its last message came, in ActiveClock's seconds
        self._missed: dict[str, tuple[float, float]] = {}  # node -> (seconds without a message, when they ended)
        self.addresses: dict[str, str] = {}  # node -> the address it sent from
        self._heard: list[tuple[str, str]] = []  # (node, address) of nodes with a recent message, at `_heard_at`
        self._heard_at = 0.0
        self.last = ""  # node of the last message
        self.leads = True  # False while another head leads; answers then renew no lease
        self.controller = 0  # from `controller_number`
        self._lines: dict[int, int] = {}
        self._numbers: dict[int, str] = {}
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def receive(self, data: bytes, at: float, active: float) -> dict[str, Any] | None:
        """Stores one message of a node's agent, whose seal was verified. Returns the answer if it is a heartbeat, None
        otherwise. `at`: Unix seconds. `active`: ActiveClock's seconds."""
        try:
            message = json.loads(data)
            jobs = message.get("jobs", {})
            rows = [
                (int(job), str(values.pop("n")), at - max(0.0, float(values.pop("ago_s", 0.0))), values)
                for job, values in jobs.items()
            ]
            node, faults = str(message.get("node", "")), [dict(fault) for fault in message.get("faults", ())]
            checks = [dict(result) for result in message.get("checks", ())]
            turns = dict(message.get("turns", {}))
            woke = message.get("woke")
        except (ValueError, KeyError, TypeError, AttributeError):
            log("a message without a valid format")
            return None
        for job, number, said_at, values in rows:
            if self._numbers.get(job) != number:
                self._numbers[job] = number
                try:
                    self._add(job, {**values, "t": round(said_at, 1)})
                except OSError as error:
                    log(f"the report of job {job} is not stored: {error}")
        if not _NODE.fullmatch(node):
            return None
        self.beats[node] = at
        self.last = node
        missed_s = self._missed_for(node, active)
        got = []
        try:
            self._store([{**fault, "node": node} for fault in faults], [{**result, "node": node} for result in checks])
            got = [row.get("id") for row in (*faults, *checks)]
        except OSError as error:  # a full disk: the node sends them again, and its heartbeat still counts
            log(f"{self._faults_file}: {error}")
        self._turn(node, turns, at)
        answer = {"got": got, "now": round(at, 3), "leads": self.leads, "controller": self.controller}
        if isinstance(woke, int):
            answer |= {"woke": woke, "missed_s": missed_s}
        return {**answer, "others": self._others(node, at)}

    def _missed_for(self, node: str, active: float) -> float | None:
        """Returns the longest time without a message of the node within the last MISSED_KEPT_S, without the time in
        which this agent did not run; None if it is unknown, because the node's first message to this agent came within the
        last UNKNOWN_KEPT_S. A node that wakes up sends other messages before it asks."""
        before = self._active.get(node)
        self._active[node] = active
        if before is None:
            self._missed[node] = math.inf, active
            return None
        missed_s, ended = self._missed[node]
        kept_s = MISSED_KEPT_S if math.isfinite(missed_s) else UNKNOWN_KEPT_S
        if active - ended > kept_s or active - before >= missed_s:
            missed_s, ended = active - before, active
        self._missed[node] = missed_s, ended
        return round(missed_s, 2) if math.isfinite(missed_s) else None

    def _others(self, node: str, at: float) -> list[str]:
        """Returns the addresses of up to MOST_OTHERS other nodes that have sent a heartbeat recently."""
        if abs(at - self._heard_at) >= 1:  # not for each message: thousands of nodes send one a second
            self._heard = [
                (name, address) for name, address in self.addresses.items() if at - self.beats.get(name, 0.0) < HEARD_S
            ]
            self._heard_at = at
        some = random.sample(self._heard, min(MOST_OTHERS + 1, len(self._heard)))
        return [address for name, address in some if name != node][:MOST_OTHERS]

    def _turn(self, node: str, turns: dict[str, Any], at: float) -> None:
        """Writes the jobs that have just begun or ended to TURNS. This is a hint for the server that reads now; it is
        not kept."""
        number, jobs = str(turns.get("n", "")), turns.get("jobs")
        if not number or number == self._turns.get(node) or not isinstance(jobs, list):
            return
        self._turns[node] = number
        line = json.dumps({"at": round(at, 3), "node": node, "jobs": [job for job in jobs if isinstance(job, int)]})
        try:
            with open(self._turns_file, "a") as file:
                file.write(line + "\n")
                full = file.tell() > MOST_TURNS
            if full:
                os.unlink(self._turns_file)
        except OSError as error:  # nothing is lost: the server also reads the queue by itself
            log(f"{self._turns_file}: {error}")

    def _store(self, faults: list[dict[str, Any]], checks: list[dict[str, Any]]) -> None:
        """Writes the faults and the check results that differ from the last ones (a restarted agent sends all of its
        results) to disk, before the node gets its acknowledgement. All are synced at once: the head's agent answers no
        node meanwhile. Raises OSError if nothing could be stored."""
        changed, results = [], dict[tuple[str, str], tuple[Any, ...]]()
        for result in checks:
            key = (result["node"], str(result.get("check", "")))
            if results.get(key, self._checks.get(key, _FINE)) != _state_key(result):
                changed.append(result)
                results[key] = _state_key(result)
        rows = {str(row.get("id", "")): row for row in (*faults, *changed)}
        new = {name: row for name, row in rows.items() if name and name not in self._faults}
        if new:
            _append(self._faults_file, "\n".join(map(json.dumps, new.values())), sync=True)
            self._faults.update(dict.fromkeys(new))
        self._checks.update(results)
        if len(self._faults) > MOST_FAULTS:
            lines = whole_lines(self._faults_file)[-MOST_FAULTS // 2 :]
            with open(f"{self._faults_file}.new", "w") as file:
                file.writelines(lines)
            os.replace(f"{self._faults_file}.new", self._faults_file)
            self._faults = dict.fromkeys([*self._faults][-len(lines) :])

    def _add(self, job: int, values: dict[str, Any]) -> None:
        path = f"{self._folder}/{job}.jsonl"
        if job not in self._lines:
            self._lines[job] = len(whole_lines(path))
        _append(path, json.dumps(values))
        self._lines[job] += 1
        if self._lines[job] > MOST_LINES:
            lines = whole_lines(path)
            kept = [*lines[:-1:2], lines[-1]]
            with open(f"{path}.new", "w") as file:
                file.writelines(kept)
            os.replace(f"{path}.new", path)
            self._lines[job] = len(kept)

    def forget_old(self, now: float) -> None:
        """Deletes reports of jobs that have added nothing for KEEP_S, and drops jobs that have added nothing for a day
        from memory."""
        for name in os.listdir(self._folder):
            path = f"{self._folder}/{name}"
            try:
                age_s = now - os.stat(path).st_mtime
                if age_s > KEEP_S:
                    os.unlink(path)
            except OSError as error:  # tried again in an hour
                log(f"{path}: {error}")
                continue
            job = name.removesuffix(".jsonl")
            if age_s > 86400 and job.isdigit():
                self._lines.pop(int(job), None)
                self._numbers.pop(int(job), None)


def _append(path: str, line: str, *, sync: bool = False) -> None:
    """Appends the whole line or nothing, because half a line would spoil the next one. Raises OSError."""
    with open(path, "ab", buffering=0) as file:
        before, data = file.tell(), line.encode() + b"\n"
        try:
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fsync(file.fileno())
        except OSError:
            file.truncate(before)
            raise


_FINE = ("ok", "none", None)


def _state_key(result: dict[str, Any]) -> tuple[Any, ...]:
    return _FINE if result.get("state") == "ok" else (result.get("state"), result.get("action"), result.get("gpu"))


def controller_number(folder: str = CONTROLLER) -> int:
    """Returns a number that changes with each start of this head's slurmctld; 0 while none runs."""
    try:
        # inode of its RuntimeDirectory: systemd creates it at each start, in a tmpfs, which does not reuse inode
        # numbers
        return os.stat(folder).st_ino
    except OSError:
        return 0


class HeadServer:
    """Opens the nodes' messages and seals the answers."""

    def __init__(self, head: NodeMessages, munge: Munge, changes: Callable[[], bool] = key_change_begun) -> None:
        self._head, self._munge, self._changes = head, munge, changes
        self._callers = SenderLimits()

    def answer(self, data: bytes, sender: Sender, now: float, at: float, active: float) -> bytes | None:
        """Returns the answer to a message: sealed, or UNREAD while the MUNGE key changes; None if there is no answer.
        `now`: monotonic seconds. `at`: Unix seconds. `active`: ActiveClock's seconds."""
        if not self._callers.admits(sender, now):
            return None
        try:
            text, uid = self._munge.open(data)
        except OSError as error:
            log(f"from {sender[0]}: {error}")
            self._callers.note_unreadable(sender)
            return self._unread(sender, at)
        if uid != 0:
            log(f"from {sender[0]}: sealed by uid {uid}, not by root")
            self._callers.note_unreadable(sender)
            return None
        answer = self._head.receive(text, at, active)
        if answer is None:
            return None
        self._callers.note_readable(sender, self._head.last)
        self._head.addresses[self._head.last] = sender[0]
        try:
            return self._munge.seal(json.dumps(answer).encode())
        except OSError as error:
            log(f"not answered: {error}")
            return None

    def _unread(self, sender: Sender, at: float) -> bytes | None:
        """Returns UNREAD for a known node while the MUNGE key changes, and counts its message as a heartbeat; None otherwise."""
        node = self._callers.node_of_sender(sender)
        if not node or not self._changes():
            return None
        self._head.beats[node] = at
        return UNREAD


def serve_head(config: Config) -> None:
    """Runs the agent of a head for ever."""
    address = config.head
    ears = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ears.bind((address, PORT))
    head, leading = NodeMessages(), LeaderFile(config.first, config.state)
    desk = HeadServer(head, Munge())
    SecretServer(address, PORT, Munge()).start()
    LeaderMonitor(leading).start()
    if config.first_head:
        FirstHeadMonitor(config).start()
        TakeoverRecovery(config).start()
    watcher = HeadSampler(head.beats, first=config.first)
    watcher.start()
    MetricsServer(address, lambda: watcher.text).start()
    OfflineResponder(config, head.beats, FAULTS).start()
    due = beat = 0.0
    awake = ActiveClock()
    while True:
        now, active = time.monotonic(), awake.tick()
        if now >= due:
            head.forget_old(time.time())
            due = now + 3600
        if now >= beat:
            head.leads, head.controller = leading.is_this_head() is not False, controller_number()
            write_heartbeats(HEARTBEATS_FILE, head.beats)
            beat = now + HEARTBEAT_S
        if not select.select([ears], [], [], max(0.0, beat - now))[0]:
            continue
        data, sender = ears.recvfrom(65535)
        answer = desk.answer(data, sender, now, time.time(), active)
        if answer is not None:
            try:
                ears.sendto(answer, sender)
            except OSError as error:  # the node sends its message again
                log(f"not answered: {error}")
