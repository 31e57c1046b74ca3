"""Refused requests are in the server's log, and a flood of them is no flood of lines."""

from __future__ import annotations

from typing import Any

import httpx
from structlog.testing import capture_logs

from headway.api.http import refusal_log
from headway.services import first_in_window
from tests.support.servers.server_fakes import URL, Server

API = "/api/v1"


def refusals(logged: list[Any]) -> list[tuple[int, str]]:
    return [(line["status"], line["path"]) for line in logged if line["event"] == "request refused"]


async def test_first_refusal_of_each_kind_is_logged(server: Server, monkeypatch: Any) -> None:
    await server.store.people.set_role("ann", "admin")
    _, token = await server.store.tokens.create("ann")
    # An address of its own: the app, which other tests use too, remembers who was refused.
    transport = httpx.ASGITransport(server.app, client=("198.51.100.7", 4711))
    client = httpx.AsyncClient(transport=transport, base_url=URL, headers={"authorization": f"Bearer {token}"})
    with capture_logs() as logged:
        for _ in range(3):
            assert (await client.get(f"{API}/audit", params={"limit": "many"})).status_code == 422
        assert (await client.get(f"{API}/audit?person=%00")).status_code == 400
        assert (await client.get(f"{API}/me")).status_code == 200
        assert (await client.get(f"{API}/people/none")).status_code == 404
    assert refusals(logged) == [(422, f"{API}/audit"), (400, f"{API}/audit")]
    monkeypatch.setattr(refusal_log, "WINDOW_S", 0.0)
    with capture_logs() as logged:
        await client.get(f"{API}/audit", params={"limit": "many"})
    assert refusals(logged) == [(422, f"{API}/audit")]
    assert logged[0]["address"] == "198.51.100.7"
    await client.aclose()


def test_log_remembers_a_bounded_number_of_addresses(monkeypatch: Any) -> None:
    monkeypatch.setattr(first_in_window, "MAX_KEYS", 2)
    log = refusal_log.RefusalLog()
    with capture_logs() as logged:
        for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1", "fd00::1", "fd00::2"):
            log.note({"client": (address, 1), "method": "GET", "path": "/"}, 429)
    found = [line["address"] for line in logged]
    assert found == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1", "fd00::1"], "one key for a network of IPv6"
