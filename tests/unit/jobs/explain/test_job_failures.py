"""The error of a container is read from the log of its job."""

from __future__ import annotations

from headway.jobs.explain.job_failures import container_error


def test_container_error_is_read_from_the_log() -> None:
    log = "x\nheadway: importing a\nheadway: there is no image a\x1b[2J\n  look at its name\nsrun: error: task 0: 125\n"
    assert container_error(log) == "its container could not be started: there is no image a?[2J; look at its name"
    assert container_error("headway: importing a\nheadway: you may not\nheadway: imported a\n").endswith(
        ": you may not"
    )
    assert container_error("headway: importing a\nsrun: error\n") == ""
