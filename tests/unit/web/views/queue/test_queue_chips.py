"""The table of the queue's page and its filter buttons."""

from __future__ import annotations

from headway.domain.slurm.nodes_and_jobs import JobState
from headway.services.queue.query import QueueQuery
from headway.services.queue.search import find_jobs, page_of_result
from headway.web.views.queue.queue_address import QueueAddress
from headway.web.views.queue.queue_chips import chips
from tests.support.clusters import builders


def job(number: int, state: str = "RUNNING", **changes: object) -> JobState:
    return builders.job(number, state, **{"name": f"job{number}", "gpus": 0, **changes})


def test_mine_chip_requires_a_user() -> None:
    listed = page_of_result(find_jobs((job(7),), QueueQuery(), 1000), QueueQuery())
    on = {chip.title: chip.on for chip in chips(listed, QueueAddress(), "alice")}
    assert on == {"Running": True, "Pending": True, "Ended": False, "Mine": False}
    assert {chip.title: chip.on for chip in chips(listed, QueueAddress(user="alice"), "alice")}["Mine"]
    assert "Mine" not in [chip.title for chip in chips(listed, QueueAddress(), "")]
