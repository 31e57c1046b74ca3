"""The error of a job, or of its container, is read from its log."""

from __future__ import annotations

import pytest

from headway.jobs.explain.job_failures import container_error, last_error


def test_container_error_is_read_from_the_log() -> None:
    log = "x\nheadway: importing a\nheadway: there is no image a\x1b[2J\n  look at its name\nsrun: error: task 0: 125\n"
    assert container_error(log) == "its container could not be started: there is no image a?[2J; look at its name"
    assert container_error("headway: importing a\nheadway: you may not\nheadway: imported a\n").endswith(
        ": you may not"
    )
    assert container_error("headway: importing a\nsrun: error\n") == ""


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("step 1\nTraceback (most recent call last):\n  x = 1\ntorch.OutOfMemoryError: CUDA out of memory.\nbye\n",
         "torch.OutOfMemoryError: CUDA out of memory."),
        ("[rank3]: ValueError: no data\nsrun: error: demo-1-1: task 3: Exited with exit code 1\n",
         "[rank3]: ValueError: no data"),
        ("RuntimeError: real\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n", "RuntimeError: real"),
        ("\x1b[31mKeyError: 'loss'\x1b[0m\n", "KeyError: 'loss'"),
        ("10%|#\r20%|##\rbash: train.py: command not found\n", "bash: train.py: command not found"),
        ("slurmstepd: error: *** JOB 3 ON a CANCELLED DUE TO TIME LIMIT ***\nstep 1 loss 2\n", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_last_error_of_a_log(log: str, error: str) -> None:
    assert last_error(log) == error
