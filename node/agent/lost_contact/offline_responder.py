"""Acts on the head while no server is connected, so that a fault at night costs a job minutes instead of hours.

- A GPU error whose class drains the node (`Config.drain_codes`): the node is drained and its jobs are requeued.
- A node that is silent for longer than its lease (node_lease.py): it is set down, and Slurm requeues its jobs. Nothing is done
  while several nodes, and at least half of all, are silent, because the network is then at fault.

Everything else waits for the server. Each action is a line in ACTIONS, which the server reads before anything else, so
that nothing is done twice. Faults that the server has already read are left to it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from agent.config import Config
from agent.failover.leader import LeaderFile
from agent.log import log
from agent.lost_contact.node_lease import LEASE_OVER_S
from agent.marker_files import read_whole_lines, whole_lines

ACTIONS = "/var/lib/headway/deeds.jsonl"  # a name that agents of other versions have too
WATCHED = "/run/headway/watched"  # touched by `watch` while a server reads from it
AWAY_S = 15.0  # a restarted server is back by then
OLD_S = 900.0  # older faults are left to the server
MOST_AT_ONCE = 0.5  # share of all nodes; when more are silent, the network is at fault
FORGOTTEN_S = 900.0
TICK_S = 1.0
_OWN = "headway: "
_OUT = frozenset({"DRAIN", "DOWN", "FAIL"})
# nodes that are expected to be silent
_ASLEEP = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP"})
_ENDED_BADLY = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY"})
_GIVEN_UP = frozenset({"CANCELLED", "TIMEOUT", "DEADLINE"})
# scontrol's answers to a requeue that will never succeed: the job forbids it, or the controller no longer knows the
# job.
_NEVER = ("presently disabled", "only batch jobs", "heterogeneous job", "invalid job id")
# scontrol's answer for a job that was requeued already, also while it is still completing
_WAITS = "job is pending execution"
Run = Callable[[Sequence[str]], "tuple[int, str]"]


def run_command(argv: Sequence[str]) -> tuple[int, str]:
    """Returns (exit code, standard output, and standard error too if the command failed)."""
    try:
        done = subprocess.run(list(argv), capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return 1, str(error)
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


class OfflineResponder(threading.Thread):
    """Drains nodes and requeues jobs while no server is connected, if this head leads."""

    def __init__(
        self,
        config: Config,
        beats: dict[str, float],
        faults: str,
        actions: str = ACTIONS,
        watched: str = WATCHED,
        execute: Run = run_command,
    ) -> None:
        super().__init__(daemon=True)
        self._config = config
        self._beats = beats  # node -> Unix time of its last heartbeat
        self._faults, self._actions, self._watched = faults, actions, watched
        self._run = execute
        self._leading = LeaderFile(config.first, config.state)
        self._led: bool | None = None
        self._led_since = 0.0
        self._began = time.time()
        self._sent: dict[str, set[int]] = {}  # unfinished fault -> jobs that were requeued for it
        self._done = {str(json.loads(line)["signal"]) for line in whole_lines(actions)}

    def run(self) -> None:
        while True:
            time.sleep(TICK_S)
            try:
                self.check(time.time())
            except Exception as error:  # the thread must go on, because nothing else acts meanwhile
                log(f"relay: {error!r}")

    def check(self, now: float) -> None:
        """Acts on faults and silent nodes if the server has been away for AWAY_S."""
        read_at = self._read_at()
        leads = self._leads(now)
        if not self._config.offline_response or now - max(read_at, self._began) < AWAY_S or not leads:
            return
        for line in read_whole_lines(self._faults)[-200:]:
            if self._is_due(fault := _parse(line), max(read_at, now - OLD_S)) and not self._drain(fault, now):
                return
        if now - self._led_since >= LEASE_OVER_S:  # until then, leases that the other head has renewed may still run
            self._silent(now)

    def _is_due(self, fault: dict[str, Any], since: float) -> bool:
        """Returns whether the fault drains its node, is newer than `since` and was not dealt with."""
        code, at = fault.get("code"), fault.get("at")
        known = isinstance(code, int) and isinstance(at, int | float) and "id" in fault and "node" in fault
        return known and at > since and code in self._config.drain_codes and fault["id"] not in self._done

    def _leads(self, now: float) -> bool:
        """Returns whether this head acts: it leads, or no head is known to lead and it is the first head."""
        self._leading.refresh()
        mine = self._leading.is_this_head()
        if mine and not self._led:
            self._led_since = now
        self._led = mine
        return self._config.first if mine is None else mine

    def _read_at(self) -> float:
        try:
            return os.stat(self._watched).st_mtime
        except OSError:
            return 0.0

    def _drain(self, fault: dict[str, Any], now: float) -> bool:
        """Drains the fault's node and requeues its jobs. Returns whether the controller answers. What the controller
        did not accept is tried again at the next check."""
        node, name = str(fault["node"]), str(fault["id"])
        states, reason = self._node(node)
        if not states and "not found" in reason:
            self._done.add(name)
        if not states:
            return name in self._done
        if not states & _OUT or reason.startswith(_OWN):
            code, _ = self._run(_update(node, "DRAIN", f"relay: XID {fault['code']}"))
            if code:
                return True
        there, ending = self._jobs(node), self._jobs(node, "COMPLETING")
        if there is None or ending is None:
            return True
        job = fault.get("job")
        there -= self._over(ending, job)
        if job is not None and self._state(int(job)) in _ENDED_BADLY:
            there.add(int(job))
        sent, stay, late = self._sent.setdefault(name, set()), list[int](), False
        for number in sorted(there - sent):
            code, output = self._run(["scontrol", "requeue", self._alone(number)])
            if code == 0 or _WAITS in output.lower():
                sent.add(number)
            elif any(words in output.lower() for words in _NEVER):
                stay.append(number)
            else:
                late = True
        if not late:
            self._note(name, node, now, sorted(self._sent.pop(name)), stay)
        return True

    def _silent(self, now: float) -> None:
        # A node that has been silent for FORGOTTEN_S was handled before, or was given back.
        beats = {node: at for node, at in self._beats.items() if now - at < FORGOTTEN_S}
        silent = [node for node, at in beats.items() if now - at >= LEASE_OVER_S]
        quiet = [node for node, at in beats.items() if now - at >= LEASE_OVER_S / 2]
        if not silent or (len(quiet) > 1 and len(quiet) >= MOST_AT_ONCE * len(beats)):
            return
        for node in silent:
            name = f"silent {node} {self._beats[node]:.0f}"
            if name in self._done:
                continue
            states, output = self._node(node)
            if not states and "not found" not in output:
                return  # the controller does not answer
            if states and not states & (_OUT | _ASLEEP):
                there = self._jobs(node)
                if there is None or self._run(_update(node, "DOWN", "relay: no heartbeat, and its lease has ended"))[0]:
                    continue
                self._note(name, node, now, sorted(there), [])
            self._done.add(name)

    def _note(self, symptom: str, node: str, now: float, requeued: list[int], stay: list[int]) -> None:
        action = {"signal": symptom, "node": node, "at": round(now, 3), "requeued": requeued, "stay": stay}
        with open(self._actions, "a") as file:
            file.write(json.dumps(action) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._done.add(symptom)
        log(f"no server is connected: {node} is out of service, jobs requeued: {requeued}")

    def _node(self, node: str) -> tuple[set[str], str]:
        """Returns (states, reason) of a node; (no states, scontrol's message) if scontrol failed."""
        code, output = self._run(["scontrol", "--oneliner", "show", "node", node])
        if code:
            return set(), output
        fields = dict(word.split("=", 1) for word in output.split() if "=" in word)
        reason = output.partition(" Reason=")[2].partition(" [")[0]
        return {state.rstrip("*") for state in fields.get("State", "").split("+") if state}, reason

    def _jobs(self, node: str, states: str = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING") -> set[int] | None:
        """Returns the numbers of the node's jobs; None if squeue failed."""
        code, output = self._run(["squeue", "--noheader", f"--nodelist={node}", f"--states={states}", "--format=%A"])
        return None if code else {int(word) for word in output.split() if word.isdigit()}

    def _over(self, ending: set[int], victim: int | None) -> set[int]:
        """Returns the jobs, of those that are ending on the node, that must not be requeued: they were cancelled or
        timed out, or they completed well, and would run once more. sacct says so; without its answer the set is empty.
        The fault's own job `victim` counts only if it was cancelled or timed out."""
        if not ending:
            return set()
        jobs = ",".join(map(str, sorted(ending)))
        code, output = self._run(["sacct", "-X", "-n", "-P", "-o", "JobIDRaw,State", "-j", jobs])
        rows = [] if code else [line.partition("|") for line in output.splitlines()]
        states = {int(number): state.split(" ")[0] for number, _, state in rows if number.isdigit()}
        return {job for job, state in states.items() if state in _GIVEN_UP or (state == "COMPLETED" and job != victim)}

    def _alone(self, job: int) -> str:
        """Returns the id that names this job and no other. An array's number is also the number of one of its tasks,
        and means all of them, so the result is then ARRAY_TASK. A component of a heterogeneous job is requeued with the
        whole job, by its first component's number."""
        code, output = self._run(["squeue", "--all", "--noheader", f"--jobs={job}", "--states=all", "--format=%A %i"])
        own = "" if code else dict(line.split() for line in output.splitlines()).get(str(job), "")
        array, _, task = own.partition("_")
        whole, part, _ = own.partition("+")
        return whole if part else own if array.isdigit() and task.isdigit() else str(job)

    def _state(self, job: int) -> str:
        """Returns the job's state. For an array's number scontrol shows every task; the line with exactly this JobId is
        used."""
        _, output = self._run(["scontrol", "--oneliner", "show", "job", str(job)])
        own = next((line for line in output.splitlines() if line.startswith(f"JobId={job} ")), "")
        return own.partition(" JobState=")[2].partition(" ")[0]


def _parse(line: str) -> dict[str, Any]:
    """Returns the fault in a line; {} for a line that can't be read, which must not keep the others from being read."""
    try:
        fault = json.loads(line)
    except ValueError:
        return {}
    return fault if isinstance(fault, dict) else {}


def _update(node: str, state: str, why: str) -> list[str]:
    return ["scontrol", "update", f"NodeName={node}", f"State={state}", f"Reason={_OWN}{why}"]
