"""Metrics of the head: its machine, its daemons, and the age of each node's last heartbeat."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from agent.log import log
from agent.metrics import host, http_endpoint
from agent.metrics.sampler import TEXT_S, DiskReader
from agent.processes import process_names

DAEMONS = {  # name -> process name, of which the kernel keeps 15 characters
    "slurmctld": "slurmctld",
    "slurmdbd": "slurmdbd",
    "slurmrestd": "slurmrestd",
    "mariadb": "mariadbd",
    "munge": "munged",
    "prometheus": "prometheus",
    "alertmanager": "prometheus-aler",
}


# daemons that a second head does not have
OF_THE_FIRST = frozenset({"slurmdbd", "mariadb", "prometheus", "alertmanager"})
FORGOTTEN_S = 86400.0  # after so long a silent node counts as given back; until then its age is exported, for the alert


class HeadSampler(threading.Thread):
    """Prepares the head's metrics text every TEXT_S. `beats`: node -> Unix time of its last heartbeat."""

    def __init__(self, beats: Mapping[str, float], proc: str = "/proc", *, first: bool = True) -> None:
        super().__init__(daemon=True)
        self._daemons = {name: process for name, process in DAEMONS.items() if first or name not in OF_THE_FIRST}
        self._beats = beats
        self._proc = proc
        self._disks = DiskReader()
        self.text = b""

    def run(self) -> None:
        self._disks.start()
        while True:
            try:
                self.sample(time.time())
            except Exception as error:  # the thread must go on, because nothing else samples this machine
                log(f"the machine can't be measured: {type(error).__name__}: {error}")
            time.sleep(TEXT_S)

    def sample(self, now: float) -> None:
        """Prepares the text once. `now`: Unix seconds."""
        running = process_names(self._proc)
        ages = [
            ("headway_heartbeat_age_seconds", {"from": node}, round(now - at, 2))
            for node, at in sorted(self._beats.items())
            if now - at < FORGOTTEN_S
        ]
        daemons = [
            ("headway_daemon_up", {"daemon": name}, float(process in running))
            for name, process in self._daemons.items()
        ]
        figures = [*ages, *daemons, *host.process_metrics(), *host.host_metrics(self._proc), *self._disks.figures]
        self.text = http_endpoint.metrics_text("", "", False, [], [], {}, figures, {})
