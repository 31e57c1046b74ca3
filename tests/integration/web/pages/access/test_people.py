"""The page of people disables and enables them, and says what clusters have not done yet."""

from __future__ import annotations

from tests.support.servers.server_fakes import Server


async def test_page_disables_and_enables_a_person(server: Server) -> None:
    await server.apply()
    await server.store.linux_uids.add_to_cluster("lab", ["eve"])
    ann, eve = await server.client("ann", "admin"), await server.client("eve", "member")
    done = await ann.post("/people/eve/disable")
    assert (done.status_code, done.headers["location"].partition("?")[0]) == (303, "/people")
    assert (await eve.get("/api/v1/me")).status_code == 401
    page = (await ann.get("/people")).text
    assert 'action="/people/eve/enable"' in page
    assert 'action="/people/eve/disable"' not in page
    assert "lab: the Linux user is not locked yet: not done yet" in page
    assert (await ann.post("/people/eve/enable")).status_code == 303
    page = (await ann.get("/people")).text
    assert 'action="/people/eve/disable"' in page
    assert "lab: the Linux user is not in its teams yet: not done yet" in page


async def test_page_says_why_a_person_cannot_be_disabled(server: Server) -> None:
    ann = await server.client("ann", "admin")
    await ann.post("/people/nobody/disable")
    done = await ann.get((await ann.post("/people/nobody/disable")).headers["location"])
    assert "no person" in done.text
