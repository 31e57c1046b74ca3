"""Streams events from the head to the server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Sequence
from typing import IO, Any

from agent.ha.offline_responder import DEEDS, WATCHED
from agent.journal import touch_file, whole_lines
from agent.roles.head import BEATS, FAULTS, TURNS
from agent.roles.power_hints import ASKED, FILE

BEAT_S = 1.0
LOG_S = 0.1  # a log that is a plain file is looked at so often; the kernel's own wakes us
SILENT_S = 2.0
AGAIN_S = 10.0  # after the journal's program was started
MOST_NAMED = 256  # jobs of one line of ours; of more the server learns when it reads the whole queue
JOURNAL = ("journalctl", "--follow", "--lines=0", "--output=cat", "--unit=slurmctld")
# Of a task of an array it says JobId=7_3(12), and 12 is the task's own number.
_JOB = re.compile(rb"JobId=(\d+)(?:_[^\s(]*)?(?:\((\d+)\))?")


class NewLines:
    """What is added to a file of lines, whole lines only, also when another file takes its place."""

    def __init__(self, path: str, *, old: bool) -> None:
        self._path = path
        self._handle: IO[str] | None = None
        self._old = old  # whether those of before count

    def read_new(self) -> list[str]:
        if self._handle is None and os.path.exists(self._path):
            self._handle = open(self._path)  # noqa: SIM115
            if not self._old:
                self._handle.seek(0, os.SEEK_END)
        self._old = True
        if self._handle is None:
            return []
        place, found = self._handle.tell(), []
        for line in iter(self._handle.readline, ""):
            if not line.endswith("\n"):  # half a line: once more when it is whole
                self._handle.seek(place)
                break
            place += len(line.encode())
            found.append(line.rstrip())
        if os.fstat(self._handle.fileno()).st_nlink == 0:
            self._handle.close()
            self._handle = None
        return found


class ControllerLog:
    """Jobs that slurmctld's log names as it is written: submitted, cancelled, changed, started. Only a hint to look, and none
    where there is no journal: a job that waits has no node that would tell of it."""

    def __init__(self, argv: Sequence[str] = JOURNAL) -> None:
        self._argv, self._rest = argv, b""
        self._process: subprocess.Popen[bytes] | None = None
        self._next_try = float("-inf")

    def _begin(self) -> None:
        """It ends by itself when nobody is there any more to read what it writes."""
        self._next_try, null = time.monotonic() + AGAIN_S, subprocess.DEVNULL
        try:
            process = subprocess.Popen(self._argv, stdin=null, stdout=subprocess.PIPE, stderr=null)
        except OSError:
            return
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._process, self._rest = process, b""

    def new_job_numbers(self) -> list[int]:
        if self._process is None and time.monotonic() >= self._next_try:
            self._begin()
        if self._process is None or self._process.stdout is None:
            return []
        read = self._process.stdout.read()
        if read == b"" and self._process.poll() is not None:  # it has ended; another is started after a while
            self._process.stdout.close()
            self._process = None
        lines, _, self._rest = (self._rest + (read or b"")).rpartition(b"\n")
        return sorted({int(one[2] or one[1]) for one in _JOB.finditer(lines)})


def stream_events(
    faults: str = FAULTS,
    beats: str = BEATS,
    turns: str = TURNS,
    asked: str = f"{ASKED}/{FILE}",
    journal: Sequence[str] = JOURNAL,
) -> None:
    """On the head, for the server, as long as it reads: {"fault": ...} or {"check": ...} a line, those of before first;
    {"turns": [numbers of jobs that began or ended somewhere just now]}; {"named": [numbers of jobs in the controller's log]};
    and each second {"power": true} when Slurm has asked for machines or to be rid of some; {"alive": how many nodes,
    "silent": {node: seconds}}, or {"relay": seconds} when the agent here is away itself."""
    due, spool, begun = 0.0, NewLines(faults, old=True), NewLines(turns, old=False)
    wishes, named = NewLines(asked, old=False), ControllerLog(journal)
    for line in whole_lines(DEEDS):  # before the faults they belong to
        print(f'{{"deed": {line.rstrip()}}}', flush=True)
    while True:
        for line in spool.read_new():
            kind = "check" if '"check": ' in line else "fault"
            print(f'{{"{kind}": {line}}}', flush=True)
        turned = begun.read_new()
        if turned:
            told = {job for line in turned for job in json.loads(line)["jobs"]}
            print(json.dumps({"turns": sorted(told)}), flush=True)
        jobs = named.new_job_numbers()
        if 0 < len(jobs) <= MOST_NAMED:
            print(json.dumps({"named": jobs}), flush=True)
        if wishes.read_new():
            print('{"power": true}', flush=True)
        if time.monotonic() >= due:
            due = time.monotonic() + BEAT_S
            print(json.dumps(heartbeat_ages(beats, time.time())), flush=True)
            touch_file(WATCHED)
        time.sleep(LOG_S)


def heartbeat_ages(beats: str, now: float) -> dict[str, Any]:
    try:
        relay_s = now - os.stat(beats).st_mtime
        with open(beats) as file:
            ages = {node: round(now - at, 1) for node, at in json.load(file).items()}
    except (OSError, ValueError):
        return {"relay": -1}
    if relay_s > SILENT_S:
        return {"relay": round(relay_s, 1)}
    silent = {node: age for node, age in ages.items() if age > SILENT_S}
    return {"alive": len(ages) - len(silent), "silent": silent}
