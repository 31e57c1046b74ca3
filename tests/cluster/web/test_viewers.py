"""The load that viewers put on Slurm does not grow with their number."""

from __future__ import annotations

import re
import threading
import time
from contextlib import ExitStack

import httpx
from tests.cluster.lab import Lab

from headway.schemas.base import API_PREFIX
from headway.server.workers.slurm_polling import WATCHED_S

VIEWERS = 20
SPAN_S = 6.0
READING = 3  # RPCs of one reading: nodes, jobs, reservations
# The pace of readings with any number of viewers; a span has one more or less, and news of a job cause one early.
MOST = (SPAN_S / WATCHED_S + 2) * READING
CHECK = 4  # RPCs of one check, every ten seconds


def asked(lab: Lab) -> int:
    """Returns the number of RPCs that slurmctld received from the server's user, from sdiag."""
    users = lab.head("sdiag").out.partition("statistics by user")[2].partition("Pending RPC")[0]
    return sum(int(found) for found in re.findall(r"^\s+slurm\s+\(.*?count:(\d+)", users, re.MULTILINE))


def look(lab: Lab, viewers: int, job: int) -> tuple[int, int]:
    """Returns (RPCs within SPAN_S, lists and pages that were answered in that time)."""
    client = lab.client
    headers = {"authorization": f"Bearer {client._connection._token}"}
    stop, seen = threading.Event(), []
    paths = [
        f"{API_PREFIX}/clusters/lab/jobs", f"{API_PREFIX}/clusters/lab/jobs/{job}", f"{API_PREFIX}/clusters/lab/nodes",
        f"{API_PREFIX}/clusters/lab/teams", "/clusters/lab/queue", f"/clusters/lab/jobs/{job}", "/clusters/lab", "/",
    ]  # fmt: skip

    def one(number: int) -> None:
        with ExitStack() as open_, httpx.Client(base_url=client.url, headers=headers, timeout=240) as http:
            stream = f"{API_PREFIX}/clusters/lab/events" if number % 2 else "/clusters/lab/queue/live"
            open_.enter_context(http.stream("GET", stream))
            while not stop.wait(0.3):
                answer = http.get(paths[(number + len(seen)) % len(paths)])
                assert answer.status_code == 200, answer.text
                seen.append(number)

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(viewers)]
    for thread in threads:
        thread.start()
    if viewers:
        lab.wait(lambda: len(seen) > viewers, "all to look")
    before, begun = asked(lab), time.monotonic()
    counted = len(seen)
    time.sleep(SPAN_S)  # the test measures what happens within a time
    rpcs = asked(lab) - before
    took = time.monotonic() - begun
    counted = len(seen) - counted
    stop.set()
    for thread in threads:
        thread.join(60)
    return round(rpcs * SPAN_S / took), counted


def test_slurm_load_does_not_grow_with_viewers(lab: Lab) -> None:
    job = lab.sbatch("stan", "--gpus=1", wrap="while [ ! -e go ]; do sleep 0.2; done")
    lab.wait_job(job, "RUNNING")
    alone, _ = look(lab, 0, job)
    together, answers = look(lab, VIEWERS, job)
    lab.head("touch", "/home/stan/go", user="stan")
    lab.wait_job(job)
    assert alone > 0, "the poller reads, for a job runs"
    assert answers > VIEWERS, "they did look"
    assert together <= MOST + CHECK, f"{alone} RPCs with nobody, {together} with {VIEWERS} viewers"
