"""Streams events from the head to the server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Sequence
from typing import IO

from agent.heartbeats import HEARTBEAT_S, HEARTBEATS_FILE, heartbeat_summary
from agent.jobs.secret_server import SECRET_DELIVERIES_FILE
from agent.lost_contact.offline_responder import ACTIONS, WATCHED
from agent.marker_files import read_whole_lines, touch_file
from agent.roles.head import FAULTS, TURNS
from agent.roles.power_requests import ASKED, FILE

LOG_S = 0.1  # polling interval
AGAIN_S = 10.0  # least time between two starts of journalctl
MOST_NAMED = 256  # jobs in one line; for more than that, the server reads the whole queue anyway
JOURNAL = ("journalctl", "--follow", "--lines=0", "--output=cat", "--unit=slurmctld")
# For an array's task the log has JobId=7_3(12), where 12 is the task's own number.
_JOB = re.compile(rb"JobId=(\d+)(?:_[^\s(]*)?(?:\((\d+)\))?")


class NewLines:
    """Reads the lines that are added to a file, whole lines only, also when another file takes its place."""

    def __init__(self, path: str, *, old: bool) -> None:
        self._path = path
        self._handle: IO[str] | None = None
        self._old = old  # whether lines from before the start count

    def read_new(self) -> list[str]:
        """Returns the lines added since the last call."""
        if self._handle is None and os.path.exists(self._path):
            self._handle = open(self._path)  # noqa: SIM115
            if not self._old:
                self._handle.seek(0, os.SEEK_END)
        self._old = True
        if self._handle is None:
            return []
        place, found = self._handle.tell(), []
        for line in iter(self._handle.readline, ""):
            if not line.endswith("\n"):  # an incomplete line is read again when it is complete
                self._handle.seek(place)
                break
            place += len(line.encode())
            found.append(line.rstrip())
        if os.fstat(self._handle.fileno()).st_nlink == 0:
            self._handle.close()
            self._handle = None
        return found


class ControllerLog:
    """Reads slurmctld's log and finds the jobs in it: submitted, cancelled, changed, started. This is only a hint for
    the server, needed because no node reports a pending job. Without a journal there are no hints."""

    def __init__(self, argv: Sequence[str] = JOURNAL) -> None:
        self._argv, self._rest = argv, b""
        self._process: subprocess.Popen[bytes] | None = None
        self._next_try = float("-inf")

    def _begin(self) -> None:
        """Starts journalctl, which ends by itself when its output is no longer read."""
        self._next_try, null = time.monotonic() + AGAIN_S, subprocess.DEVNULL
        try:
            process = subprocess.Popen(self._argv, stdin=null, stdout=subprocess.PIPE, stderr=null)
        except OSError:
            return
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._process, self._rest = process, b""

    def new_job_numbers(self) -> list[int]:
        """Returns the numbers of the jobs in new log lines."""
        if self._process is None and time.monotonic() >= self._next_try:
            self._begin()
        if self._process is None or self._process.stdout is None:
            return []
        read = self._process.stdout.read()
        if read == b"" and self._process.poll() is not None:  # journalctl has ended; it is started again after AGAIN_S
            self._process.stdout.close()
            self._process = None
        lines, _, self._rest = (self._rest + (read or b"")).rpartition(b"\n")
        return sorted({int(match[2] or match[1]) for match in _JOB.finditer(lines)})


def stream_events(
    faults: str = FAULTS,
    beats: str = HEARTBEATS_FILE,
    turns: str = TURNS,
    power_requests: str = f"{ASKED}/{FILE}",
    journal: Sequence[str] = JOURNAL,
    deliveries: str = SECRET_DELIVERIES_FILE,
) -> None:
    """Prints events for the server until it stops reading, one JSON object a line.

    - First the earlier actions, faults and check results, then new ones: {"deed": ...}, {"fault": ...}, {"check": ...}
    - {"turns": [numbers of jobs that have just begun or ended on a node]}
    - {"named": [numbers of jobs in the controller's log]}
    - {"secrets": {...}} for each start of a job that got secrets, first the earlier ones (see agent.jobs.secret_server)
    - {"power": true} when Slurm has asked to start or stop machines
    - each second {"alive": number of nodes, "silent": {node: seconds}}, or {"relay": seconds} if the head's agent itself is
    away"""
    due, spool, begun = 0.0, NewLines(faults, old=True), NewLines(turns, old=False)
    wishes, named = NewLines(power_requests, old=False), ControllerLog(journal)
    delivery_lines = NewLines(deliveries, old=True)
    for line in read_whole_lines(ACTIONS):  # printed before the faults they belong to
        # The key is "deed" because servers of other versions read this too.
        print(f'{{"deed": {line.rstrip()}}}', flush=True)
    while True:
        for line in spool.read_new():
            kind = "check" if '"check": ' in line else "fault"
            print(f'{{"{kind}": {line}}}', flush=True)
        for line in delivery_lines.read_new():
            print(f'{{"secrets": {line}}}', flush=True)
        turned = begun.read_new()
        if turned:
            numbers = {job for line in turned for job in json.loads(line)["jobs"]}
            print(json.dumps({"turns": sorted(numbers)}), flush=True)
        jobs = named.new_job_numbers()
        if 0 < len(jobs) <= MOST_NAMED:
            print(json.dumps({"named": jobs}), flush=True)
        if wishes.read_new():
            print('{"power": true}', flush=True)
        if time.monotonic() >= due:
            due = time.monotonic() + HEARTBEAT_S
            print(json.dumps(heartbeat_summary(beats, time.time())), flush=True)
            touch_file(WATCHED)
        time.sleep(LOG_S)
