"""The page of a pipeline offers a retry to those whom the API lets retry it."""

from __future__ import annotations

import pytest

from headway.domain.teams import Team, User
from headway.schemas.submission.exec_commands import ExecOut
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading

PAGE = "/clusters/lab/pipelines"


@pytest.mark.parametrize(
    ("person", "role", "offered"),
    [("eve", "member", True), ("lea", "lead", False), ("ann", "admin", True), ("vic", "viewer", False)],
)
async def test_retry_is_offered_to_the_owner_and_admins(server: Server, person: str, role: str, offered: bool) -> None:
    users = tuple(User(name, (), ("red",)) for name in ("eve", "lea"))
    server.backend.clusters["lab"] = {"teams": (Team("red", ("eve", "lea"), 1, leads=("lea",)),), "users": users}
    await server.apply()
    kept = {"document": {"name": "one", "steps": {"a": {"run": "x"}}}, "bundle": "", "git": None}
    row = await server.store.pipelines.save("lab", "one", person="eve", user="eve", workdir="/w", document=kept)
    await server.store.jobs.record(
        "lab", 41, person="eve", user="eve", kind="run", request={}, facts={}, audit={}, pipeline=row.id, step="a"
    )
    failed = builders.job(41, "FAILED", user="eve", account="red")
    server.backend.answers |= {"read": reading(failed), "machines": (), "run_command": ExecOut(code=1)}
    answer = await (await server.client(person, role)).get(f"{PAGE}/{row.id}")
    assert answer.status_code == 200
    assert ("Retry failed steps" in answer.text) is offered
