"""Answers of a poller process."""

from __future__ import annotations

import sys
from pathlib import Path

from headway.domain.slurm.nodes_and_jobs import JobState, NodeState
from headway.server.slurm_poller.client import SlurmPoller
from headway.server.slurm_poller.frames import END, frame
from headway.server.slurm_poller.process import SnapshotChanges
from tests.support.clusters import builders

NODE = builders.node("lab-1-1")
FIRST = (builders.job(1, nodes=("lab-1-1",), gpu_indexes={"lab-1-1": (0, 1)}), builders.job(2, "PENDING"))
THEN = (FIRST[0], builders.job(2), builders.job(3, "PENDING"))
LAST = (THEN[1], THEN[2])
CHILD = """
import os, sys
sys.stdin.readline()
for number, answer in enumerate(sys.argv[1:]):
    if not sys.stdin.readline():
        break
    with open(answer, "rb") as file:
        sys.stdout.buffer.write(file.read())
    sys.stdout.buffer.flush()
"""


def poller(folder: Path, *answers: bytes) -> SlurmPoller:
    """One that answers with these, one a reading, and then ends."""
    files = [folder / str(number) for number in range(len(answers))]
    for file, answer in zip(files, answers, strict=True):
        file.write_bytes(answer)
    argv = (sys.executable, "-c", CHILD, *map(str, files))
    return SlurmPoller(builders.machine("lab-head"), "key", b"jwt", "24.11", argv)


def told(changes: SnapshotChanges, *jobs: JobState, nodes: tuple[NodeState, ...] = (NODE,)) -> bytes:
    return b"".join(changes.of(nodes, jobs)) + frame(END)
