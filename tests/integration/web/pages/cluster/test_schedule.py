"""The page of the schedule: what Slurm has planned, and windows that change the cluster file after a confirmation."""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime
from typing import Any

import httpx

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import resolve_cluster_file
from headway.domain.changeset import Disturbs
from headway.domain.slurm.nodes_and_jobs import SPARES, Reservation
from headway.schemas.clusters import Document
from headway.services.cluster_backend import ResolvedCluster, SlurmReading
from headway.services.queue.schedule import schedule_json
from headway.validation.yaml_parser import parse_yaml
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

AT = "/clusters/lab/schedule"
API = "/api/v1/clusters/lab/schedule"
HOUR_S = 3600


def reading(now: int) -> SlurmReading:
    jobs = (
        builders.job(1, "RUNNING", name="long", nodes=("lab-1-1", "lab-1-2"), start_time=now - 60, time_limit_s=4 * HOUR_S),
        builders.job(2, "RUNNING", name="endless", nodes=("lab-1-3",), start_time=now - 60, time_limit_s=None),
        builders.job(
            3, "PENDING", name="next", reason="Resources", start_time=now + HOUR_S, time_limit_s=HOUR_S,
            scheduled_nodes=("lab-1-4",), node_count=1,
        ),
        builders.job(4, "PENDING", name="later", reason="Priority", start_time=now + 2 * HOUR_S, node_count=2),
        builders.job(5, "PENDING", name="held", reason="JobHeldUser"),
        builders.job(6, "PENDING", name="unseen", reason="Priority"),
    )  # fmt: skip
    kept = (
        Reservation("cooling", ("lab-1-1",), ("root",), ("MAINT",), now + HOUR_S, now + 2 * HOUR_S),
        Reservation(SPARES, ("lab-1-4",), ("root",), (), now - HOUR_S, 4_102_444_800),
        Reservation("over", ("lab-1-1",), ("root",), ("MAINT",), now - HOUR_S, now - 1),
    )
    return SlurmReading((), jobs, reservations=kept)


async def opened(server: Server) -> tuple[httpx.AsyncClient, int]:
    now = int(server.state.clock())
    await server.apply()
    nodes = tuple(builders.node(f"lab-1-{i}") for i in range(1, 5))
    made = reading(now)
    server.backend.answers |= {
        "machines": (),
        "read": SlurmReading(nodes, made.jobs, reservations=made.reservations),
        "head_local_time": lambda cluster, at: datetime.fromtimestamp(at, UTC).replace(tzinfo=None),
        "plan": server_fakes.changes(Disturbs.NOTHING),
    }
    return await server.client(origin=server_fakes.URL), now


def window(now: int, **more: Any) -> dict[str, str]:
    sent = {"kind": "maintenance", "window": "psu", "nodes": "lab-1-[1-2]", "start_at": now + HOUR_S, "hours": "2.5"}
    return {key: str(value) for key, value in {**sent, **more}.items()}


def field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    return found[1] if found else ""


async def test_schedule_has_expected_ends_and_only_the_starts_that_slurm_has_planned(server: Server) -> None:
    client, now = await opened(server)
    told = (await client.get(API)).json()
    jobs = {one["id"]: one for one in told["jobs"]}
    assert list(jobs) == [1, 2, 3, 4]
    assert (jobs[1]["state"], jobs[1]["end"], jobs[2]["end"]) == ("running", now - 60 + 4 * HOUR_S, 0)
    assert (jobs[3]["state"], jobs[3]["start"], jobs[3]["nodes"]) == ("planned", now + HOUR_S, ["lab-1-4"])
    assert (jobs[4]["nodes"], jobs[4]["node_count"], told["unplanned"]) == ([], 2, 2)
    kinds = {one["name"]: (one["kind"], one["end"], one["in_file"]) for one in told["reservations"]}
    assert kinds == {SPARES: ("spares", 0, False), "cooling": ("maintenance", now + 2 * HOUR_S, False)}
    assert [one["name"] for one in told["nodes"]] == ["lab-1-1", "lab-1-2", "lab-1-3", "lab-1-4"]
    page = (await client.get(AT)).text
    assert "Slurm has planned the start of 2 jobs, of 1 without naming nodes." in page
    assert "2 pending jobs have no planned start." in page


async def test_schedule_says_when_nothing_is_planned(server: Server) -> None:
    client, _ = await opened(server)
    server.backend.answers["read"] = SlurmReading((builders.node("lab-1-1"),), ())
    page = (await client.get(AT)).text
    assert "No job runs." in page
    assert "Nothing is planned to start." in page


async def test_window_names_the_jobs_that_it_affects_and_changes_the_file_when_confirmed(server: Server) -> None:
    client, now = await opened(server)
    start = (now + HOUR_S) // 60 * 60
    shown = await client.post(AT, data=window(now, nodes="lab-1-[1-2],lab-1-4"))
    assert shown.status_code == 200
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", shown.text))
    assert "1 running job may run into it and continues" in text
    assert "1 long of" in text
    assert "1 pending job will start later or on other nodes: 3 next of" in text
    assert "Make it although it affects 2 jobs" in text
    assert await server.store.operations.active("lab") is None
    sent = window(now, nodes="lab-1-[1-2],lab-1-4", digest=field(shown.text, "digest"), confirmed="yes")
    done = await client.post(f"{AT}/apply", data=sent)
    operation = await server.store.operations.active("lab")
    assert operation is not None
    assert done.headers["location"] == f"/operations/{operation.id}"
    document: Any = operation.document
    part = {
        "start": f"{datetime.fromtimestamp(start, UTC):%Y-%m-%dT%H:%M}", "duration": "02:30:00", "maintenance": True,
        "nodes": ["lab-1-1", "lab-1-2", "lab-1-4"],
    }  # fmt: skip
    assert document["spec"]["reservations"] == {"psu": part}
    assert parse_yaml(document["text"])["reservations"] == {"psu": part}
    again = await client.post(f"{AT}/apply", data=window(now, window="other"))
    assert again.status_code == 409
    assert "Apply of lab is under way" in again.text


async def test_reservation_is_for_users_and_can_be_removed(server: Server) -> None:
    client, now = await opened(server)
    sent = window(now, kind="reservation", users="alice, bob", nodes="", window="")
    shown = await client.post(AT, data=sent)
    name = field(shown.text, "window")
    assert name == f"reservation-{datetime.fromtimestamp(now + HOUR_S, UTC):%Y%m%d-%H%M}"
    await client.post(
        f"{AT}/apply", data={**sent, "window": name, "digest": field(shown.text, "digest"), "confirmed": "1"}
    )
    server.backend.answers["apply"] = False
    await server.work_off()
    row = await server.state.clusters.row("lab")
    kept = row.document["spec"]["reservations"][name]
    assert (kept["users"], kept.get("nodes"), kept.get("maintenance")) == (["alice", "bob"], None, None)
    shown = await client.post(AT, data={"remove": name})
    assert f"Remove {name}" in shown.text
    await client.post(f"{AT}/apply", data={"remove": name, "digest": field(shown.text, "digest")})
    operation = await server.store.operations.active("lab")
    assert operation is not None
    assert "reservations" not in operation.document["spec"]


async def test_window_refuses_what_cannot_be(server: Server) -> None:
    client, now = await opened(server)
    for more, words in (
        ({"nodes": "lab-9-9"}, "Lab has no node lab-9-9"),
        ({"nodes": "lab-[1"}, "Nodes: "),
        ({"hours": "long"}, "is not a number of hours"),
        ({"hours": "0"}, "the length must be more than 0 hours"),
        ({"start_at": "0", "hours": "0.01"}, "The window is over already"),
        ({"start_at": "", "start": "soon"}, "is not a date and time"),
    ):
        told = await client.post(AT, data=window(now, **more))
        assert told.status_code == 400
        assert words.lower() in told.text.lower()
    told = await client.post(AT, data={"remove": "nothing"})
    assert told.status_code == 404


async def test_viewer_sees_the_schedule_without_the_form(server: Server) -> None:
    await opened(server)
    client = await server.client("vic", "viewer", origin=server_fakes.URL)
    assert 'id="window-form"' not in (await client.get(AT)).text


async def test_reservations_that_slurm_does_not_have_are_listed_and_can_be_removed(server: Server) -> None:
    server.state.clock.now = 1_800_000_000.0  # type: ignore[attr-defined]
    client, now = await opened(server)
    listed = {
        name: {
            "start": f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M}",
            "duration": "04:00:00",
            "maintenance": True,
        }
        for name, at in (("refused", now + HOUR_S), ("ended", now - 17 * HOUR_S), ("cooling", now + HOUR_S))
    }

    async def resolve(document: Document) -> ResolvedCluster:
        return ResolvedCluster(*resolve_cluster_file(document.spec, load_catalogue({}), owner=document.owner))

    server.backend.lifecycle.resolve = resolve  # type: ignore[method-assign]
    await server.apply(reservations=listed)
    told = (await client.get(API)).json()
    assert [(one["name"], one["over"]) for one in told["not_in_slurm"]] == [("refused", False), ("ended", True)]
    assert told["not_in_slurm"][1]["text"].endswith(" for 4 h, all nodes, for root")
    page = (await client.get(AT)).text
    assert all(f'name="remove" value="{name}"' in page for name in listed)
    shown = await client.post(AT, data={"remove": "refused"})
    await client.post(f"{AT}/apply", data={"remove": "refused", "digest": field(shown.text, "digest")})
    operation = await server.store.operations.active("lab")
    assert operation is not None
    assert set(operation.document["spec"]["reservations"]) == {"ended", "cooling"}


async def test_many_running_jobs_leave_planned_starts_in_the_table(server: Server) -> None:
    client, now = await opened(server)
    running = [builders.job(100 + i, "RUNNING", nodes=("lab-1-1",), start_time=now - 60) for i in range(103)]
    server.backend.answers["read"] = SlurmReading((builders.node("lab-1-1"),), (*running, *reading(now).jobs[2:4]))
    page = (await client.get(AT)).text
    assert page.count('<span class="word is-running">running</span>') == 100
    assert page.count('<span class="word is-waiting">planned</span>') == 2
    assert "and 3 more running: <a" in page


async def test_answer_is_encoded_once_for_each_reading(server: Server) -> None:
    client, _ = await opened(server)
    plain = await client.get(API, headers={"accept-encoding": "identity"})
    packed = await client.get(API, headers={"accept-encoding": "gzip"})
    assert (plain.headers.get("content-encoding"), packed.headers["content-encoding"]) == (None, "gzip")
    assert plain.json() == packed.json()
    _, cluster = await server.state.clusters.get("lab")
    first = await schedule_json(server.state, "lab", compressed=True)
    assert await schedule_json(server.state, "lab", compressed=True) is first
    assert gzip.decompress(first) == await schedule_json(server.state, "lab")
    server.backend.answers["read"] = SlurmReading((), ())
    server.state.clock.now += 5  # type: ignore[attr-defined]
    await server.state.readings.refresh(cluster)
    assert json.loads(await schedule_json(server.state, "lab"))["jobs"] == []
