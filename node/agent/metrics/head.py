"""Metrics of the head: its machine, its daemons, and the age of each node's last heartbeat."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from agent.jobs.processes import process_names
from agent.journal import log
from agent.metrics import exporter, host
from agent.metrics.sampler import TEXT_S, DiskReader

DAEMONS = {  # name -> its process, of which the kernel keeps 15 letters
    "slurmctld": "slurmctld",
    "slurmdbd": "slurmdbd",
    "slurmrestd": "slurmrestd",
    "mariadb": "mariadbd",
    "munge": "munged",
    "prometheus": "prometheus",
    "alertmanager": "prometheus-aler",
}


OF_THE_FIRST = frozenset({"slurmdbd", "mariadb", "prometheus", "alertmanager"})  # no second head has them
FORGOTTEN_S = 86400.0  # of a node that was given back; until then the alert asks whether it should be there


class HeadSampler(threading.Thread):
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
            except Exception as error:  # without this thread nobody looks any more, and nobody is told
                log(f"the machine can't be looked at: {type(error).__name__}: {error}")
            time.sleep(TEXT_S)

    def sample(self, now: float) -> None:
        running = process_names(self._proc)
        ages = [
            ("headway_beat_age_seconds", {"from": node}, round(now - at, 2))
            for node, at in sorted(self._beats.items())
            if now - at < FORGOTTEN_S
        ]
        daemons = [
            ("headway_daemon_up", {"daemon": name}, float(process in running))
            for name, process in self._daemons.items()
        ]
        figures = [*ages, *daemons, *host.process_metrics(), *host.host_metrics(self._proc), *self._disks.figures]
        self.text = exporter.metrics_text("", "", False, [], [], {}, figures, {})
