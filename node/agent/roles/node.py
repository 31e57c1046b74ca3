"""The agent of a node: its main loop and its messages to the head."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from agent.checks.kernel_log_errors import is_kernel_error
from agent.checks.kernel_log_reader import KernelLog, boot_id, kernel_line
from agent.checks.runner import BAD, MOUNT, OK
from agent.checks.xid_errors import MOST_IN_A_BEAT, GpuErrors
from agent.config import Config
from agent.environments.keeper import EnvironmentKeeper
from agent.failover.reregistration import Reregistration
from agent.gpu.gpu_source_choice import LateSource
from agent.gpu.job_gpus import jobs_on_node
from agent.gpu.nvml import Nvml
from agent.heartbeats import HEARTBEAT_S
from agent.jobs.job_changes import LOOK_S, JobChanges
from agent.jobs.training_reports import MOST_BYTES, Reports
from agent.log import log
from agent.lost_contact.key_change import UNREAD, key_change_begun
from agent.lost_contact.node_lease import Lease, other_node_addresses
from agent.marker_files import touch_file
from agent.metrics.http_endpoint import MetricsServer
from agent.metrics.sampler import Sampler
from agent.munge import Munge
from agent.roles.head import PORT

SOCKET = "/run/headway/report/socket"
FLUSH_S = 2.0
BREATH_S = 0.05
AT_ONCE = 200  # datagrams received in one go, followed by a pause, so that a flood of reports does not load the machine
TURN_S = 0.4  # least time between two heartbeats when jobs begin or end
LOG_S = 0.1  # polling interval of a log that is a plain file; /dev/kmsg wakes the main loop
MARK = "/run/headway/xid"  # touched at each GPU error: the epilog then waits until the error's action is known


def serve_node(config: Config) -> None:
    """Runs the agent of a node for ever."""
    ears = open_report_socket(SOCKET)
    outs = [_to(head) for head in config.heads]
    munge = Munge()
    source = LateSource(config) if config.gpus or config.simulated else None
    watcher = Sampler(config, source)

    def send(message: dict[str, Any]) -> None:
        try:
            sealed = munge.seal(json.dumps(message).encode())
        except OSError as error:  # munged does not answer; the next heartbeat follows in a second
            log(f"not sent: {error}")
            return
        watcher.sealed_at = watcher.awake()
        for out in outs:
            try:
                out.send(sealed)
            except OSError as error:  # that head is away
                log(f"not sent: {error}")

    reports = Reports(send)
    faults = GpuErrors(os.uname().nodename, boot_id(), watcher.gpus_by_bus)
    watcher.xids, watcher.errors = faults.last, faults.seen
    results = ChangedResults(faults.node, faults.boot)
    turns = JobChanges()
    kernel_log = KernelLog(config.kernel_log)
    lease = Lease(lambda: other_node_addresses(config.heads), heads=len(config.heads))
    asked = 0  # the last question of the lease that was sent
    registers = Reregistration()
    if config.offline_response:
        lease.start()
    watcher.start()
    EnvironmentKeeper(lambda: not jobs_on_node()).start()
    events = DriverEvents(source)
    events.start()
    MetricsServer(outs[0].getsockname()[0], lambda: watcher.text).start()
    due = beat = time.monotonic()
    while True:
        now = time.monotonic()
        if watcher.gpus_were_read and read_kernel_log(kernel_log, faults, watcher.kernel, now):
            touch_file(MARK)
            beat = now  # send the heartbeat immediately
        while events.has_event(time.time()):
            if faults.record_driver_event(*events.next(), time.time()):
                touch_file(MARK)
                beat = now
        while lease.ended:
            faults.record_ended_job("lease", *lease.ended.popleft(), time.time())
        while watcher.lost:
            faults.record_ended_job(
                "orphan", watcher.lost.popleft(), "the slurmstepd of its batch script has died", time.time()
            )
            beat = now
        while watcher.cpu_torch:
            reports.set_flag(*watcher.cpu_torch.popleft(), now)
        if results.add(watcher.changed):
            touch_file(MARK)  # a job that fails now may have failed because of this
            beat = now
        if turns.has_changed(now):
            beat = min(beat, max(now, beat - HEARTBEAT_S + TURN_S))
        if lease.question != asked:
            beat = now
        if now >= beat:
            asked = lease.question
            message = {**faults.pending_message(), **results.message_part(), **turns.message_part(now)}
            send(message | ({"woke": asked} if asked else {}))
            beat = now + HEARTBEAT_S
        if now >= due:
            reports.flush(now)
            due = now + FLUSH_S
        wait_s = min(beat, due) - now
        sources = [ears, *outs] + ([kernel_log.handle] if kernel_log.wakes and kernel_log.handle >= 0 else [])
        ready = select.select(sources, [], [], max(0.0, min(wait_s, LOOK_S if kernel_log.wakes else LOG_S)))[0]
        registers.register_if_due(now)
        for number, out in enumerate(outs):
            if out not in ready:
                continue
            answer = open_answer(receive_answers(out), munge)
            if faults.acknowledge(answer.get("got")):
                beat = now  # a severe error may wait behind a flood of light ones
            results.acknowledge(answer.get("got"))
            lease.take_answer(config.heads[number], answer.get("woke"), answer.get("missed_s"))
            if renews_lease(answer):
                if "now" in answer:
                    registers.note_leader(config.heads[number], int(answer.get("controller", 0)), now)
                lease.last_contact, lease.known = time.monotonic(), other_nodes_in_answer(answer)
                watcher.skew_s = time.time() - answer["now"] if "now" in answer else watcher.skew_s
        if ears in ready:
            receive_reports(ears, reports)


def _to(head: str) -> socket.socket:
    """Returns a UDP socket to this head. Every head gets every message, so that any of them can lead."""
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.connect((head, PORT))
    return out


def open_report_socket(path: str) -> socket.socket:
    """Returns a new Unix datagram socket at `path`, to which all users may write."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    ears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ears.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    ears.bind(path)
    os.chmod(path, 0o666)  # all users may send; the kernel names the sender
    return ears


def read_kernel_log(log: KernelLog, faults: GpuErrors, trouble: deque[str], now: float) -> bool:
    """Reads the log's new records, appends the kernel's errors to `trouble`, and returns whether a GPU error was among
    them."""
    found = False
    for record in log.new_records():
        if faults.record_line(record, time.time(), now):
            found = True
        elif is_kernel_error(text := kernel_line(record)):
            trouble.append(text)
    return found


def receive_reports(ears: socket.socket, reports: Reports) -> None:
    """Receives up to AT_ONCE datagrams, then pauses for BREATH_S."""
    for _ in range(AT_ONCE):
        try:
            data, ancillary, _, _ = ears.recvmsg(MOST_BYTES + 1, socket.CMSG_SPACE(12), socket.MSG_DONTWAIT)
        except BlockingIOError:
            break
        for level, kind, body in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                pid, uid, _ = struct.unpack("iII", body[:12])
                reports.receive(data, pid, uid, time.monotonic())
    time.sleep(BREATH_S)


def receive_answers(out: socket.socket) -> bytes:
    """Returns the next answer of a head, or b""."""
    try:
        return out.recv(65535)
    except OSError:  # that head is away
        return b""


def other_nodes_in_answer(answer: dict[str, Any]) -> list[str]:
    """Returns the addresses of other nodes with contact to the head."""
    others = answer.get("others")
    return [address for address in others if isinstance(address, str)] if isinstance(others, list) else []


def open_answer(data: bytes, munge: Munge) -> dict[str, Any]:
    """Returns a head's answer: {"got": acknowledged ids, "now": its clock, "leads": whether it may lead, "others":
    addresses of some nodes with contact to it}; {"unread": True} from a head that already has another MUNGE key; {} for
    anything else."""
    if data == UNREAD:
        return {"unread": True} if key_change_begun() else {}
    try:
        text, uid = munge.open(data)
        answer = json.loads(text)
        return answer if uid == 0 and isinstance(answer, dict) else {}
    except (OSError, ValueError):
        return {}


def renews_lease(answer: dict[str, Any]) -> bool:
    """Returns whether the answer renews the lease: it comes from a head that leads. The other head would renew the
    lease of a node that the controller has set down. An answer without "leads" (an older agent) counts, and so does an
    unreadable one during a key change."""
    if answer.get("unread") is True:
        return True
    return isinstance(answer.get("now"), int | float) and answer.get("leads", True) is True


class DriverEvents(threading.Thread):
    """Errors that NVML reports, besides those in the kernel's log. Each is held back for HOLD_S: the log's line says
    more, and if it comes first, the event is dropped as known."""

    HOLD_S = 2.0
    AGAIN_S = 5.0

    def __init__(self, source: LateSource | None, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(daemon=True)
        self._source, self._sleep = source, sleep
        self._errors: deque[tuple[float, str, int]] = deque(maxlen=1000)

    def run(self) -> None:
        if self._source is None:
            return
        while self._source.opened is None:
            self._sleep(self.AGAIN_S)
        if not isinstance(self._source.opened, Nvml):
            return
        try:
            wait = self._source.opened.wait_for_event()
        except (OSError, AttributeError) as error:
            log(f"no events of NVML: {error}")
            return
        while True:
            try:
                found = wait(5000)
            except OSError as error:  # at once and each time, for example while a GPU is lost
                log(f"no events of NVML now: {error}")
                self._sleep(self.AGAIN_S)
                continue
            if found is not None:
                self._errors.append((time.time(), *found))

    def has_event(self, now: float) -> bool:
        """Returns whether an event has been held back long enough. `now`: Unix seconds."""
        return bool(self._errors) and now - self._errors[0][0] >= self.HOLD_S

    def next(self) -> tuple[str, int]:
        """Returns (bus address, XID) of the oldest event."""
        _, bus, code = self._errors.popleft()
        return bus, code


class ChangedResults:
    """The check results that changed, kept until the head has acknowledged them."""

    def __init__(self, node: str, boot: str) -> None:
        self._begin = f"{node}-{boot}"
        self.unsent: dict[str, dict[str, Any]] = {}

    def add(self, changed: deque[dict[str, Any]]) -> bool:
        """Takes the changed results and returns whether one of them is bad. A result that the head has not acknowledged
        is dropped when the check is ok again, if its only action was to wait: it may have been the head itself that was
        away."""
        urgent = False
        while changed:
            row = changed.popleft()
            if row["state"] == OK:
                over = [
                    name for name, result in self.unsent.items() if _waits(result) and result["check"] == row["check"]
                ]
                self.acknowledge(over)
            name = f"{self._begin}-{row['check']}-{row['at']:.3f}"
            self.unsent[name] = {"id": name, **row}
            urgent = urgent or row["state"] == BAD
        return urgent

    def message_part(self) -> dict[str, Any]:
        """Returns the part of the next message to the head that holds check results, at most MOST_IN_A_BEAT."""
        return {"checks": list(self.unsent.values())[:MOST_IN_A_BEAT]}

    def acknowledge(self, names: Any) -> None:
        """Drops the results whose ids the head has acknowledged."""
        for name in names if isinstance(names, list) else ():
            self.unsent.pop(str(name), None)


def _waits(row: dict[str, Any]) -> bool:
    """Returns whether the result ends by itself and running jobs go on meanwhile: a volume of another machine, or a
    disk filled by jobs."""
    return row["state"] == BAD and row["action"] == MOUNT
