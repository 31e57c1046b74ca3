"""The page that changes a cluster's file asks, where it shows the changes, how long jobs on removed nodes may run,
and asks nothing if no machine is removed."""

from __future__ import annotations

import re

from headway.domain.changeset import Change, ChangeSet, Disturbs
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

TEXT = "name: lab\nplan: h100-8\nnodes: 2\n"


def fewer(*jobs: int) -> ChangeSet:
    disturbs = Disturbs.JOBS if jobs else Disturbs.NODE_DRAIN
    return ChangeSet(
        "lab", (Change("machine.delete", "lab-1-4", "lab-1-4", "why", disturbs, data={"jobs": list(jobs)}),)
    )


def digest(page: str) -> str:
    found = re.search(r'name="digest" value="([^"]*)"', page)
    assert found is not None
    return found[1]


async def test_document_page_asks_a_deadline_for_jobs_on_removed_nodes(server: Server) -> None:
    await server.apply()
    client = await server.client(origin=server_fakes.URL)
    server.backend.answers["plan"] = fewer(7)
    shown = (await client.post("/new", data={"text": TEXT, "do": "plan"})).text
    assert 'name="deadline"' in shown
    sent = {"text": TEXT, "digest": digest(shown), "confirmed": "yes"}
    refused = await client.post("/new/apply", data=sent)
    assert refused.status_code == 409
    assert "lab-1-4" in refused.text
    wrong = await client.post("/new/apply", data={**sent, "deadline": "soon"})
    assert wrong.status_code == 400
    assert "is not a number of minutes" in wrong.text
    assert 'value="soon"' in wrong.text, "what was typed stays"
    assert await server.store.operations.active("lab") is None
    done = await client.post("/new/apply", data={**sent, "digest": digest(wrong.text), "deadline": "10"})
    operation = await server.store.operations.active("lab")
    assert operation is not None
    assert done.headers["location"] == f"/operations/{operation.id}"
    assert operation.params["deadline_s"] == 600


async def test_document_page_asks_no_deadline_if_no_node_is_removed(server: Server) -> None:
    await server.apply()
    client = await server.client(origin=server_fakes.URL)
    server.backend.answers["plan"] = server_fakes.changes(Disturbs.NODE_RESTART)
    shown = (await client.post("/new", data={"text": TEXT, "do": "plan"})).text
    assert 'name="digest"' in shown
    assert 'name="deadline"' not in shown
