"""The poller process reports readings, the server applies them, and the server handles the poller's death."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from headway.server.slurm_poller.client import SlurmPoller
from tests.support.clusters import builders


async def test_poller_process_reports_ssh_error_and_exits_on_close() -> None:
    head = replace(builders.machine("lab-head"), address="127.0.0.1", port=1)
    one = SlurmPoller(head, "no key", b"k" * 32, "24.11")
    with pytest.raises(Exception, match=r"private key|no SSH"):
        await one.read()
    pid = one.pid
    assert pid is not None
    await one.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
