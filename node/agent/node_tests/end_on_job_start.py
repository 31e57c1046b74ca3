"""Lets a job that starts on this node end a test at once: the job's prolog kills the process that MARK names."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from agent.gpu.job_gpus import JOBS, jobs_on_node
from agent.node_tests.results import NodeTestSkipped

MARK = "/run/headway/gives-way"  # the prolog (render/slurm/hooks/prolog_epilog.py) reads the process id from it


@contextlib.contextmanager
def gives_way_to_jobs(mark: str = MARK, jobs: str = JOBS) -> Iterator[None]:
    """Marks this process as one that gives way. Raises NodeTestSkipped if a job is on the node or another test runs.

    The mark is written before the jobs are read, and the prolog makes the job's folder before it reads the mark: one of
    the two sees the other."""
    with open(os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NodeTestSkipped("another test runs on this node") from None
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            if jobs_on_node(jobs):
                raise NodeTestSkipped("a job is on this node")
            yield
        finally:
            file.seek(0)
            file.truncate()
