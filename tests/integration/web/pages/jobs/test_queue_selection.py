"""The boxes that select jobs of the queue: each stands for exactly the tasks that its words name."""

from __future__ import annotations

import re

from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, reading

AT = "/clusters/lab/queue"


async def boxes(server: Server, view: str) -> dict[str, tuple[str, str]]:
    """Returns (words of the question, label) of each box, by the job that is acted on."""
    client = await server.client("alice", "member", origin=server_fakes.URL)
    await client.get("/api/v1/clusters/lab/jobs")  # reads the queue
    page = (await client.get(f"{AT}{view}")).text
    found = re.findall(r'class="q-pick"[^>]* value="(\S+)"[^>]* data-words="([^"]+)" aria-label="([^"]+)"', page)
    assert len(found) == page.count('class="q-pick"')
    assert len({job for job, _, _ in found}) == len(found)
    return {job: (words, label) for job, words, label in found}


async def test_a_box_never_stands_for_tasks_that_it_does_not_name(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {
        "machines": (),
        "read": reading(
            builders.job(18, "PENDING", name="sweep", array_job_id=18, array_task="4-10"),
            builders.job(21, "RUNNING", name="sweep", array_job_id=18, array_task="3"),
            builders.job(
                30, "RUNNING", name="last", array_job_id=30, array_task="9"
            ),  # Slurm gives it the array's number
            builders.job(40, "PENDING", name="plain"),
        ),
        "array_states": {},
    }
    task = ("18_3 sweep of alice, running", "Select job 18_3")
    whole = ("sweep of alice, all tasks of array 18 (1 running, 7 pending)", "Select all tasks of array 18")
    found = await boxes(server, "?open=18,30")
    assert found["18"] == whole
    assert found["18_3"] == task
    assert found["40"] == ("40 plain of alice, pending", "Select job 40")
    assert found["30_9"][1] == "Select job 30_9"
    assert set(found) == {"18", "18_3", "30", "30_9", "40"}
    assert await boxes(server, "?array=18") == {"18_3": task}
    assert set(await boxes(server, "?array=30")) == {"30_9"}
