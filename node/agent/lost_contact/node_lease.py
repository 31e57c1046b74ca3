"""The lease of a node: a node without contact ends its own jobs before they are started elsewhere.

The head answers each heartbeat. Without an answer for LEASE_S a node ends the processes of its jobs, unless the head is down and
not the node: the node then asks other nodes, and most of them answer that they have no contact to the head either. So a restart
of the head or of its agent ends no job. Only nodes that had contact to the head are asked, because many slots of an elastic
cluster have no machine.

A machine that was suspended notices this by the clock. It asks each head for how long the head missed it, in time during which
that head itself ran. If the whole host stood still, as a suspended laptop with a local cluster or a paused hypervisor, the node
was not set DOWN and its jobs go on. Of two heads both must say so: whichever ran meanwhile may have taken over and set the node
DOWN, also if it does not lead or is out of reach now. Without an answer of every head within WAKE_ANSWER_S it ends its jobs.

With two heads, the answer of the leading head counts, because its controller sets the node DOWN. While no head is known to lead,
as during a takeover, the answer of either head counts; a takeover begins 12 seconds after the last heartbeat, so it ends no job.

The server or the head's agent sets the node DOWN in Slurm only after LEASE_OVER_S, which is later."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from agent.log import log
from agent.metrics.host import read_text
from agent.munge import Munge
from agent.processes import job_of, runs_as_root

LEASE_S = 20.0
LEASE_OVER_S = 28.0  # all processes have ended by then; the same value is in health/detection/silence_rules.py
ASK_S = 8.0  # after so long without an answer, other nodes are asked
FRESH_S = 6.0  # how long an answer of another node counts
# Jobs end only after other nodes have had contact to the head for so long, because a returning head reaches the nodes one
# after another.
TESTIFIED_S = 2.0
WAKE_ANSWER_S = 1.0  # how long a machine that stood still waits for the head's answer before it ends its jobs
# The head missed a node for so short a time only if it stood still as well: by then no node is set DOWN.
MISSED_S = 8.0
TICK_S = 0.25
PORT = 6821
_MOST_ASKED = 8
_SPARED = frozenset({"slurmstepd"})


class Lease(threading.Thread):
    """Ends this node's jobs when its lease is over. The main loop sets `last_contact` whenever a leading head has answered,
    and reports (job, reason) from `ended` to the head."""

    def __init__(
        self, others: Callable[[], list[str]], end: Callable[[], set[int]] | None = None, *, heads: int = 1
    ) -> None:
        super().__init__(daemon=True)
        self._heads = heads  # how many the cluster has
        self.question = 0  # number of the question to the heads how long they missed this node; 0: there is none
        self._questions = 0
        self._woke_at = 0.0  # when the question was asked
        self._missed: dict[str, float] = {}  # head -> its answer, in seconds
        self._others = others
        self._end = end or end_jobs
        self.last_contact = self._ticked = time.monotonic()
        self.ended: deque[tuple[int, str]] = deque()
        self.known: list[str] = []  # addresses of nodes with contact to the head, from its last answer
        self._queried: list[str] = []
        self._queried_since = 0.0  # value of `last_contact` when _queried was chosen
        self._answers: dict[
            str, tuple[float, float]
        ] = {}  # node -> (when it answered, when it last had contact to the head)
        self._testified: float | None = None  # since when other nodes report contact to the head
        self._over = False
        self._ears: socket.socket | None = None
        self._asked_at = 0.0

    def run(self) -> None:
        munge = Munge()
        while True:
            self.tick(munge)

    def tick(self, munge: Munge) -> None:
        """Checks the lease, asks other nodes if that is due, and listens to them for TICK_S."""
        now = time.monotonic()
        self.check(now)
        if self._ears is None and not self._open_port():
            time.sleep(TICK_S)
            return
        assert self._ears is not None
        if now - self.last_contact >= ASK_S and now - self._asked_at >= 1:
            self._asked_at = now
            self._query_other_nodes(self._ears, munge)
        self._listen(self._ears, munge)

    def _open_port(self) -> bool:
        """Opens the port for messages of other nodes. Returns False while another process has it."""
        ears = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            ears.bind(("", PORT))
        except OSError as error:
            ears.close()
            log(f"UDP port {PORT}: {error}: other nodes can't be asked about the head")
            return False
        ears.settimeout(TICK_S)
        self._ears = ears
        return True

    def check(self, now: float) -> None:
        """Ends the jobs if the lease is over."""
        stood_still = now - self._ticked >= LEASE_S
        self._ticked = now
        fresh = [heard_at for at, heard_at in self._answers.values() if now - at <= FRESH_S]
        if now - self.last_contact < ASK_S or not any(now - heard_at < ASK_S for heard_at in fresh):
            self._testified = None
        elif self._testified is None:
            self._testified = now
        if stood_still:
            self._questions += 1
            self.question, self._woke_at, self._missed = self._questions, now, {}
        if self.question:
            all_answered = len(self._missed) >= self._heads
            if not all_answered and now - self._woke_at < WAKE_ANSWER_S:
                return
            stood_still = not all_answered or max(self._missed.values()) >= MISSED_S
            self.question = 0
            if not stood_still:
                log("this machine was suspended together with the heads; jobs continue")
        if not stood_still and now - self.last_contact < LEASE_S:
            self._over = False
            return
        why = "this machine was frozen" if stood_still else self._cut_off(now, len(fresh))
        if not why or (self._over and not stood_still):
            return
        self._over = True
        for job in sorted(self._end()):
            log(f"job {job}: its processes on this node were ended: {why}")
            self.ended.append((job, why))

    def take_answer(self, head: str, question: Any, missed_s: Any) -> None:
        """Takes a head's answer to `question`: for how many seconds it missed this node while it ran itself."""
        if question == self.question and isinstance(missed_s, int | float):
            self._missed[head] = float(missed_s)

    def _cut_off(self, now: float, answered: int) -> str:
        """Returns the reason if this node, not the head, is cut off; "" if the head is away, or if that is not known
        yet."""
        if self._testified is not None:
            return "other nodes reach the head and this node does not" if now - self._testified >= TESTIFIED_S else ""
        if answered * 2 >= len(self._queried):
            return ""
        return f"no contact for {now - self.last_contact:.0f} s"

    def _query_other_nodes(self, ears: socket.socket, munge: Munge) -> None:
        if not self._queried or self._queried_since != self.last_contact:  # choose other nodes for each outage
            self._queried_since = self.last_contact
            others = self.known or self._others()
            self._queried = random.sample(others, min(_MOST_ASKED, len(others)))
        for address in self._queried:
            self._send(ears, munge, {"hears": None}, (address, PORT))

    def _listen(self, ears: socket.socket, munge: Munge) -> None:
        try:
            data, sender = ears.recvfrom(65535)
            text, uid = munge.open(data)
            message = json.loads(text)
        except (OSError, ValueError):
            return
        if uid != 0 or not isinstance(message, dict) or "hears" not in message:
            return
        now = time.monotonic()
        if message["hears"] is None:
            self._send(ears, munge, {"hears": round(now - self.last_contact, 2)}, sender)
        elif sender[0] in self._queried:
            self._answers[sender[0]] = (now, now - float(message["hears"]))

    @staticmethod
    def _send(ears: socket.socket, munge: Munge, message: dict[str, Any], to: tuple[str, int]) -> None:
        try:
            ears.sendto(munge.seal(json.dumps(message).encode()), to)
        except OSError as error:
            log(f"{to[0]} not asked: {error}")


def end_jobs(proc: str = "/proc", only: int | None = None) -> set[int]:
    """Kills the processes of all jobs on this node, or of job `only`, repeatedly until none is left (20 rounds at
    most). Returns the jobs."""
    found: set[int] = set()
    for _ in range(20):
        alive = False
        for name in os.listdir(proc):
            job = _job(int(name), proc) if name.isdigit() else None
            if job is None or (only is not None and job != only):
                continue
            try:
                os.kill(int(name), signal.SIGKILL)
            except OSError:
                continue
            found.add(job)
            alive = True
        if not alive:
            break
        time.sleep(0.05)
    return found


def _job(pid: int, proc: str) -> int | None:
    """Returns the job of a process; None for processes outside of jobs and for slurmstepd, which reports the job's end
    itself."""
    try:
        uid = os.stat(f"{proc}/{pid}").st_uid
    except OSError:
        return None
    name = read_text(f"{proc}/{pid}/comm").strip()
    state = read_text(f"{proc}/{pid}/stat").rpartition(")")[2].split()[:1]
    return None if state == ["Z"] or (name in _SPARED and runs_as_root(pid, proc)) else job_of(pid, uid, proc)


def other_node_addresses(heads: Collection[str], path: str = "/etc/hosts") -> list[str]:
    """Returns the addresses of the cluster's other nodes, from /etc/hosts."""
    own = {address for _, _, _, _, (address, *_) in _own_addresses()}
    try:
        with open(path) as file:
            rows = [line.split("#")[0].split() for line in file]
    except OSError:
        return []
    found = {row[0] for row in rows if len(row) > 1 and row[0].count(".") == 3 and not row[0].startswith("127.")}
    return sorted(found - own - set(heads))


def _own_addresses() -> list[Any]:
    try:
        return list(socket.getaddrinfo(os.uname().nodename, None, socket.AF_INET))
    except OSError:
        return []
