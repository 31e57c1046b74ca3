"""Large plans, all at the same time and as large as requests may be, neither keep the server's memory nor stop other people."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.schemas.base import MOST_NAMES
from headway.sdk.local_server import RunningServer
from headway.sdk.server_address import find_server
from headway.services.access.concurrency_limits import MAX_PLANS_PER_PERSON
from tests.support.servers.server_process import ServerProcess, resident_mib

GIVEN_BACK_S = 60.0
MOST_WAIT_S = 60.0  # of another person; generous: seconds on an idle machine


def plan_of(teams: int, users: int = 1) -> bytes:
    members = {f"t{team}": {"users": [f"u{team}-{user}" for user in range(users)]} for team in range(teams)}
    return json.dumps({"text": "", "spec": {"name": "lab", "plan": "h100-8", "nodes": 4, "teams": members}}).encode()


@pytest.fixture
def people(state_dir: Path) -> Iterator[tuple[RunningServer, httpx.Client, httpx.Client]]:
    """Yields a server that resolves cluster files, with a client of an admin, and of another person."""
    process = ServerProcess(state_dir, "tests.support.servers.resolving_server")
    process.start()
    server = process.wait_ready()
    _, admin_token, _ = find_server(state_dir)
    headers = {"authorization": f"Bearer {admin_token}", "content-type": "application/json"}
    options: dict[str, Any] = {"base_url": f"{server.url}/api/v1", "timeout": 300, "trust_env": False}
    with httpx.Client(headers=headers, **options) as admin:
        made = admin.post("/tokens", json={"person": "eve", "label": "eve", "role": "member"})
        assert made.status_code == 201, made.text
        with httpx.Client(headers={"authorization": f"Bearer {made.json()['token']}"}, **options) as eve:
            yield server, admin, eve
    process.kill()


@pytest.mark.parametrize(
    ("large", "code"), [(plan_of(1000, 40), 200), (plan_of(MOST_NAMES - 1), 422)], ids=["valid", "refused"]
)
def test_large_plans_at_once_give_memory_back_and_others_are_answered(
    people: tuple[RunningServer, httpx.Client, httpx.Client], large: bytes, code: int
) -> None:
    server, admin, eve = people
    assert admin.post("/plan", content=plan_of(3)).status_code == 200
    admin.post("/plan", content=large)  # what the first large one loads is not what others leave behind
    before, peak, slowest = resident_mib(server.pid), 0.0, 0.0
    with ThreadPoolExecutor(MAX_PLANS_PER_PERSON) as pool:
        plans: list[Future[httpx.Response]] = [
            pool.submit(admin.post, "/plan", content=large) for _ in range(MAX_PLANS_PER_PERSON)
        ]
        while not all(plan.done() for plan in plans):
            began = time.monotonic()
            assert eve.get("/me").status_code == 200
            slowest = max(slowest, time.monotonic() - began)
            peak = max(peak, resident_mib(server.pid))
    codes = {plan.result().status_code for plan in plans}
    ends = time.monotonic() + GIVEN_BACK_S
    while (after := resident_mib(server.pid)) > 1.2 * before and time.monotonic() < ends:
        eve.get("/me")
    sys.stdout.write(
        f"{MAX_PLANS_PER_PERSON} plans of {len(large)} bytes: {codes}; {before:.0f} MiB before, {peak:.0f} at most, {after:.0f}"
        f" after {GIVEN_BACK_S - ends + time.monotonic():.0f} s; another person waited {slowest:.2f} s at most\n"
    )
    assert codes == {code}
    assert after <= 1.2 * before
    assert slowest < MOST_WAIT_S
