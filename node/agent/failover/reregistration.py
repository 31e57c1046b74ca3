"""Registers a node with Slurm again some time after a controller began to lead, on either head or after a restart.

A controller that is made a standby may allocate a job at that moment and record it as running without having launched
it; one that is killed may have received the end of a job without recording it. The next controller learns from the node's
registration that the job does not run and requeues it. For BatchStartTimeout after its own start it ignores such jobs,
and the next registration that Slurm requests may be half an hour away (src/slurmctld/job_mgr.c, _purge_missing_jobs;
ping_nodes.c, MAX_REG_FREQUENCY)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from agent.failover.unreachable_first_head import run_command
from agent.log import log

AFTER_S = 45.0  # render/slurm/slurm_conf.py's BatchStartTimeout is 30 s
# slurmd registers after it has read its configuration again; running jobs are not affected.
RELOAD = ("systemctl", "reload", "--no-block", "slurmd.service")


class Reregistration:
    """Reloads slurmd AFTER_S after another controller began to lead."""

    def __init__(self, execute: Callable[[Sequence[str]], int] = run_command) -> None:
        self._execute = execute
        self._leads: tuple[str, int] | None = None
        self._due = 0.0  # monotonic seconds; 0: no registration is due

    def note_leader(self, head: str, controller: int, now: float) -> None:
        """Records that `head` says it leads. `controller`: a number that changes with each start of its controller; 0
        while none runs there."""
        if not controller:
            return
        if self._leads not in (None, (head, controller)):
            self._due = now + AFTER_S
        self._leads = head, controller

    def register_if_due(self, now: float) -> threading.Thread | None:
        """Reloads slurmd if a registration is due. Returns the thread that does it, because systemd may not answer and
        the agent's heartbeats must go on; None if none is due."""
        if not self._due or now < self._due:
            return None
        self._due = 0.0
        reload = threading.Thread(target=self._reload, daemon=True)
        reload.start()
        return reload

    def _reload(self) -> None:
        if code := self._execute(RELOAD):
            log(f"{' '.join(RELOAD)} ended with {code}: Slurm checks this node's jobs at its next request")
