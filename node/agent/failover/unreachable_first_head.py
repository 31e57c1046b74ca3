"""Runs on a second head, which is Slurm's backup controller. While the machine of the first head, the primary controller, does
not answer, it makes connections to slurmctld and slurmdbd there fail at once.

A slurmctld that takes over contacts slurmdbd four or five times before it serves. It waits a second each time for a machine that
is switched off, and minutes for one that hangs while its kernel accepts connections. squeue waits for the first controller in the
same way. A routing rule for those ports therefore refuses the connections; it works in any network and disappears with a reboot.

The first head counts as down when its agent's port does not answer (the rule does not cover that port) and its heartbeat in the
state folder does not change. A broken network between the heads, or an agent that hangs, therefore has no effect."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from agent.config import Config
from agent.failover.leader import LeaderFile
from agent.log import log
from agent.metrics.http_endpoint import PORT

WAIT_S = 1.0
LOOK_S = 0.5
STILL_S = 2.0  # the controller writes a heartbeat each second; the backup takes over after four
SLURM = "6817-6819"  # ports of slurmctld and slurmdbd
PREF = "6817"
_LINE_S = 10


def host_answers(address: str, port: int = PORT) -> bool:
    """Returns whether the machine is reachable: its agent answers, or its kernel refuses the connection."""
    try:
        with socket.create_connection((address, port), WAIT_S) as link:
            link.settimeout(WAIT_S)
            link.sendall(b"GET / HTTP/1.0\r\n\r\n")
            link.recv(1)
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    except OSError:
        return False
    return True


def run_command(argv: Sequence[str]) -> int:
    """Returns the command's exit code; 1 if it can't be started or takes longer than _LINE_S."""
    try:
        return subprocess.run(
            list(argv), stdin=subprocess.DEVNULL, capture_output=True, timeout=_LINE_S, check=False
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return 1


class FirstHeadMonitor(threading.Thread):
    """Adds the routing rule while the first head is down, and removes it when the first head answers again."""

    def __init__(
        self,
        config: Config,
        answers: Callable[[str], bool] = host_answers,
        execute: Callable[[Sequence[str]], int] = run_command,
    ) -> None:
        super().__init__(daemon=True)
        self._first = config.first_head
        self._answers, self._execute = answers, execute
        self._leading = LeaderFile(config.first, config.state)
        self._beat, self._beat_at = (0, 0), 0.0  # the newest heartbeat, and when it changed on our own clock
        self._refused: bool | None = None  # None: unknown, an earlier agent may have left the rule
        self._failed = False

    def run(self) -> None:
        while True:
            self.check(time.monotonic())
            time.sleep(LOOK_S)

    def check(self, now: float) -> None:
        """Checks the first head once, and adds or removes the rule."""
        there = self._beats(now) | self._answers(self._first)
        if there and self._refused is not False:
            while self._execute(["ip", "rule", "del", "pref", PREF]) == 0:
                pass
            if self._refused:
                log(f"{self._first} answers again: requests go to it as before")
            self._refused = False
        elif not there:
            self._refuse()

    def _beats(self, now: float) -> bool:
        """Returns whether the first head leads and its heartbeat still changes. The other machine's clock is not
        used."""
        self._leading.refresh()
        if self._leading.beat != self._beat:
            self._beat, self._beat_at = self._leading.beat, now
        return self._beat[1] == 0 and now - self._beat_at < STILL_S

    def _refuse(self) -> None:
        """Adds the rule, at every check: programs that manage a machine's network may remove rules that are not
        theirs."""
        rule = ["pref", PREF, "to", self._first, "ipproto", "tcp", "dport", SLURM, "unreachable"]
        code = self._execute(["ip", "rule", "add", *rule])
        if code not in (0, 2):  # 2: the rule exists
            if not self._failed:
                log(f"ip rule add {' '.join(rule)} ended with {code}: a takeover takes some seconds longer")
            self._failed = True
        elif not self._refused:
            log(f"{self._first} is down: requests to its controller and accounting fail at once")
            self._refused = True
