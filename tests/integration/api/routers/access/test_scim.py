"""People and groups by SCIM, with requests as Okta, Entra ID and Keycloak write them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.api.http.request_guard import MAX_SCIM_BODY
from headway.domain.access.role import Role
from headway.domain.access.user_change_results import UserLockResult, UserUpdateResult
from headway.domain.teams import Team, User
from headway.schemas.access.scim import (
    GROUP_SCHEMA,
    HEADWAY_USER_SCHEMA,
    MESSAGES,
    MOST_FILTER,
    MOST_OPERATIONS,
    MOST_RESULTS,
    SCIM_JSON,
    USER_SCHEMA,
)
from headway.server.workers.user_changes import UserChanges
from headway.services.server_settings import Oidc
from headway.store import AuditAsk
from tests.support.api.oidc_provider import Provider, fresh, provider, sign_in_by, use
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, reading

__all__ = ["provider"]  # a fixture
fresh_provider = fresh

USERS, GROUPS = "/scim/v2/Users", "/scim/v2/Groups"
ISSUER = "https://id.example.org"
RULES: dict[str, Any] = {
    "role_claim": "groups",
    "roles": (("hpc-admins", Role.ADMIN), ("staff", Role.MEMBER)),
    "team_claim": "groups",
    "teams": (("ml", "red"),),
    "user_claim": "linux_user",
}
ENTRA_PATCH = {"schemas": [f"{MESSAGES}:PatchOp"]}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(
        tmp_path, builders.Clock(), read=reading(), lock_user=UserLockResult((5,)), update_users=UserUpdateResult()
    )
    made.state.settings = replace(made.state.settings, oidc=Oidc(ISSUER, "headway", **RULES))
    made.state.clusters._settings = made.state.settings
    made.backend.clusters["lab"] = {"teams": (Team("red", ("zoe",), 1),), "users": (User("zoe", (), ("red",)),)}
    await made.client("root", "admin")
    await made.apply()
    await made.store.linux_uids.add_to_cluster("lab", ["zoe"])
    yield made
    await made.close()


@pytest.fixture
async def idp(server: Server) -> httpx.AsyncClient:
    """A client with a token that an admin made for the provider."""
    root = await server.client("root", "admin")
    answer = await root.post(
        "/api/v1/tokens", json={"person": "idp", "role": "admin", "scopes": ["scim"], "days": None}
    )
    assert answer.status_code == 201, answer.text
    return server.anonymous(authorization=f"Bearer {answer.json()['token']}", **{"content-type": SCIM_JSON})


def okta_user(
    name: str = "zoe@example.org", subject: str = "00u1", linux_user: str = "zoe", **more: Any
) -> dict[str, Any]:
    return {
        "schemas": [USER_SCHEMA],
        "userName": name,
        "name": {"givenName": "Zoe", "familyName": "Zimmer"},
        "emails": [{"primary": True, "value": name, "type": "work"}],
        "displayName": "Zoe Zimmer",
        "locale": "en-US",
        "externalId": subject,
        "groups": [],
        "password": "1mz050nq",
        "active": True,
        HEADWAY_USER_SCHEMA: {"linuxUser": linux_user},
        **more,
    }


async def added(idp: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await idp.post(USERS, json=okta_user(**fields))
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def group(idp: httpx.AsyncClient, name: str, *members: str) -> str:
    sent = {"schemas": [GROUP_SCHEMA], "displayName": name, "members": [{"value": one} for one in members]}
    answer = await idp.post(GROUPS, json=sent)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def patch(idp: httpx.AsyncClient, path: str, *operations: dict[str, Any]) -> httpx.Response:
    return await idp.patch(path, json={**ENTRA_PATCH, "Operations": list(operations)})


async def rights(server: Server, person: str = "zoe@example.org") -> tuple[str, tuple[str, ...]]:
    found = await server.store.people.get(person)
    assert found is not None
    return found.role.value, found.provider_teams


def fault(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == SCIM_JSON
    body = answer.json()
    assert body["schemas"] == [f"{MESSAGES}:Error"]
    assert body["status"] == str(answer.status_code)
    assert body["detail"]
    return answer.status_code, body.get("scimType", "")


async def test_okta_finds_adds_reads_and_replaces_a_user(server: Server, idp: httpx.AsyncClient) -> None:
    asked = {"filter": 'userName eq "zoe@example.org"', "startIndex": "1", "count": "100"}
    none = (await idp.get(USERS, params=asked)).json()
    assert (none["totalResults"], none["Resources"], none["startIndex"]) == (0, [], 1)
    answer = await idp.post(USERS, json=okta_user())
    made = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (201, SCIM_JSON)
    assert answer.headers["location"] == made["meta"]["location"]
    assert "password" not in answer.text
    assert (made["userName"], made["externalId"], made["active"]) == ("zoe@example.org", "00u1", True)
    assert made[HEADWAY_USER_SCHEMA] == {"linuxUser": "zoe"}
    assert (made["name"]["givenName"], made["emails"][0]["type"]) == ("Zoe", "work")
    person = await server.store.people.get("zoe@example.org")
    assert person is not None
    assert (person.role, person.user, person.subject) == (Role.VIEWER, "zoe", f"{ISSUER} 00u1")
    found = (await idp.get(USERS, params={"filter": 'userName eq "ZOE@example.org"'})).json()
    assert [row["id"] for row in found["Resources"]] == [made["id"]]
    changed = okta_user(displayName="Zoe Z.", **{"id": made["id"]})
    answer = await idp.put(f"{USERS}/{made['id']}", json=changed)
    assert (answer.status_code, answer.json()["displayName"]) == (200, "Zoe Z.")
    assert (await idp.get(f"{USERS}/{made['id']}")).json() == answer.json()


async def test_okta_deactivates_and_returns_a_person(server: Server, idp: httpx.AsyncClient) -> None:
    made = await added(idp)
    await group(idp, "staff", made["id"])
    _, token = await server.store.tokens.create("zoe@example.org")
    zoe = server.anonymous(authorization=f"Bearer {token}")
    assert (await zoe.get("/api/v1/me")).json()["role"] == "member"
    answer = await patch(idp, f"{USERS}/{made['id']}", {"op": "replace", "value": {"active": False}})
    assert (answer.status_code, answer.json()["active"]) == (200, False)
    assert (await zoe.get("/api/v1/me")).status_code == 401
    await asyncio.gather(*await UserChanges(server.state).start_due(0.0))
    assert [(cluster.name, user) for cluster, user in server.backend.named("lock_user")] == [("lab", "zoe")]
    (line,) = await server.store.audit.search(AuditAsk(action="user.lock"))
    assert (line.person, line.target, line.detail["job_ids"]) == ("idp", "lab", [5])
    (line,) = await server.store.audit.search(AuditAsk(action="person.disable"))
    assert (line.person, line.target, line.detail) == ("idp", "zoe@example.org", {"by": "SCIM"})
    answer = await idp.put(f"{USERS}/{made['id']}", json=okta_user(active=True))
    assert answer.json()["active"] is True
    assert await rights(server) == ("member", ())
    assert await server.store.user_changes.locked() == frozenset()


async def test_entra_disables_with_capitals_and_texts(server: Server, idp: httpx.AsyncClient) -> None:
    made = await added(idp)
    path = f"{USERS}/{made['id']}"
    answer = await patch(
        idp,
        path,
        {"op": "Replace", "path": "displayName", "value": "Zoe"},
        {"op": "Add", "path": 'emails[type eq "work"].value', "value": "z@example.org"},
        {"op": "Add", "path": "name.familyName", "value": "Z"},
        {"op": "Add", "path": 'phoneNumbers[type eq "work"].value', "value": "1"},
        {"op": "Add", "path": f"{HEADWAY_USER_SCHEMA}:linuxUser", "value": "zz"},
        {"op": "Replace", "path": "active", "value": "False"},
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["displayName"], body["emails"][0]["value"], body["active"]) == ("Zoe", "z@example.org", False)
    assert (body["name"], body[HEADWAY_USER_SCHEMA]) == ({"givenName": "Zoe", "familyName": "Z"}, {"linuxUser": "zz"})
    assert "phoneNumbers" not in body
    person = await server.store.people.get("zoe@example.org")
    assert person is not None
    assert (person.disabled, person.user) == (True, "zz")
    answer = await patch(idp, path, {"op": "replace", "value": {"active": True, "name.givenName": "Zo"}})
    assert (answer.json()["active"], answer.json()["name"]["givenName"]) == (True, "Zo")


async def test_deleted_user_is_removed_and_locked(server: Server, idp: httpx.AsyncClient) -> None:
    made = await added(idp)
    answer = await idp.delete(f"{USERS}/{made['id']}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert await server.store.people.get("zoe@example.org") is None
    assert await server.store.user_changes.locked() == {"zoe"}
    assert fault(await idp.get(f"{USERS}/{made['id']}")) == (404, "")
    assert fault(await idp.delete(f"{USERS}/{made['id']}")) == (404, "")
    await added(idp)
    assert await server.store.user_changes.locked() == frozenset()


async def test_groups_give_roles_and_teams_as_claims_do(server: Server, idp: httpx.AsyncClient) -> None:
    zoe, tim = await added(idp), await added(idp, name="tim@example.org", subject="00u2", linux_user="tim")
    staff = await group(idp, "staff", zoe["id"], tim["id"])
    ml = await group(idp, "ml")
    assert await rights(server) == ("member", ())
    okta = {"op": "add", "path": "members", "value": [{"value": zoe["id"], "display": "zoe@example.org"}]}
    assert (await patch(idp, f"{GROUPS}/{ml}", okta)).status_code == 204
    assert await rights(server) == ("member", ("red",))
    shown = (await idp.get(f"{USERS}/{zoe['id']}")).json()["groups"]
    assert [row["display"] for row in shown] == ["ml", "staff"]
    okta = {"op": "remove", "path": f'members[value eq "{zoe["id"]}"]'}
    assert (await patch(idp, f"{GROUPS}/{ml}", okta)).status_code == 204
    assert await rights(server) == ("member", ())
    entra = {"op": "Remove", "path": "members", "value": [{"$ref": None, "value": tim["id"]}]}
    assert (await patch(idp, f"{GROUPS}/{staff}", entra)).status_code == 204
    assert await rights(server, "tim@example.org") == ("viewer", ())
    entra = {"op": "Add", "path": "members", "value": [{"$ref": None, "value": tim["id"]}]}
    await patch(idp, f"{GROUPS}/{staff}", entra)
    assert await rights(server, "tim@example.org") == ("member", ())
    okta = {"op": "replace", "path": "members", "value": [{"value": zoe["id"]}]}
    await patch(idp, f"{GROUPS}/{staff}", okta)
    assert [await rights(server, f"{name}@example.org") for name in ("zoe", "tim")] == [("member", ()), ("viewer", ())]
    answer = await idp.get(f"{GROUPS}/{staff}")
    assert [row["display"] for row in answer.json()["members"]] == ["zoe@example.org"]


async def test_renamed_or_removed_group_changes_its_members(server: Server, idp: httpx.AsyncClient) -> None:
    made = await added(idp)
    ops = await group(idp, "hpc-admins", made["id"])
    assert (await rights(server))[0] == "admin"
    await patch(idp, f"{GROUPS}/{ops}", {"op": "replace", "value": {"id": ops, "displayName": "staff"}})
    assert (await rights(server))[0] == "member"
    answer = await idp.put(f"{GROUPS}/{ops}", json={"displayName": "hpc-admins", "members": [{"value": made["id"]}]})
    assert (answer.status_code, (await rights(server))[0]) == (200, "admin")
    assert (await idp.delete(f"{GROUPS}/{ops}")).status_code == 204
    assert (await rights(server))[0] == "viewer"


async def test_person_who_loses_their_role_is_signed_out_and_keeps_jobs(server: Server, idp: httpx.AsyncClient) -> None:
    made = await added(idp)
    staff = await group(idp, "staff", made["id"])
    _, token = await server.store.tokens.create("zoe@example.org")
    await patch(idp, f"{GROUPS}/{staff}", {"op": "remove", "path": "members"})
    assert await server.store.tokens.holder(token) is None
    assert await server.store.user_changes.locked() == frozenset()


async def test_sign_in_finds_the_person_with_the_groups_of_scim(server: Server, provider: Provider) -> None:
    use(server, provider, **RULES)
    root = await server.client("root", "admin")
    answer = await root.post("/api/v1/tokens", json={"person": "idp", "role": "admin", "scopes": ["scim"]})
    idp = server.anonymous(authorization=f"Bearer {answer.json()['token']}")
    made = await added(idp, subject="u-9")
    provider.people("u-9", preferred_username="zoe", groups=["hpc-admins"])
    staff = await group(idp, "staff", made["id"])
    browser, back = await sign_in_by(server, provider, "u-9")
    assert back.status_code == 200, back.text
    me = (await browser.get("/api/v1/me")).json()
    assert (me["person"], me["role"]) == ("zoe@example.org", "member"), "the groups of SCIM count, not the claim"
    person = await server.store.people.get("zoe@example.org")
    assert person is not None
    assert person.user == "zoe", "from SCIM, because the sign-in has no claim of it"
    ml = await group(idp, "ml", made["id"])
    await patch(idp, f"{GROUPS}/{staff}", {"op": "remove", "path": "members"})
    assert (await browser.get("/api/v1/me")).status_code == 401
    _, back = await sign_in_by(server, provider, "u-9")
    assert back.status_code == 403
    assert await server.store.people.get("zoe@example.org") is not None, "only SCIM removes them"
    await idp.delete(f"{GROUPS}/{ml}")
    _, back = await sign_in_by(server, provider, "u-9")
    assert back.status_code == 200, "without a group of SCIM the claims count"
    await patch(idp, f"{USERS}/{made['id']}", {"op": "replace", "value": {"active": False}})
    _, back = await sign_in_by(server, provider, "u-9")
    assert (back.status_code, "is disabled" in back.text) == (403, True)


async def test_person_who_signed_in_before_is_taken_over(server: Server, idp: httpx.AsyncClient) -> None:
    before = await server.store.people.add_from_provider("zoe", f"{ISSUER} 00u1", role=Role.MEMBER, user="zoe")
    made = await added(idp)
    assert [person.name for person in await server.store.people.all() if person.subject] == ["zoe"]
    assert await rights(server, "zoe") == (before.role, ())
    await idp.delete(f"{USERS}/{made['id']}")
    assert await server.store.people.get("zoe") is None


async def test_scim_neither_takes_over_a_local_person_nor_their_user(server: Server, idp: httpx.AsyncClient) -> None:
    await server.client("ann", "admin")
    assert fault(await idp.post(USERS, json=okta_user(name="ann", linux_user="ann"))) == (403, "")
    made = await added(idp, name="ann", linux_user="anna")
    (person,) = [one for one in await server.store.people.all() if one.subject]
    assert person.name.startswith("ann-")
    await idp.delete(f"{USERS}/{made['id']}")
    assert await server.store.people.get("ann") is not None


async def test_person_whom_an_admin_disabled_is_not_enabled_by_an_unchanged_user(
    server: Server, idp: httpx.AsyncClient
) -> None:
    made = await added(idp)
    root = await server.client("root", "admin")
    await root.post("/api/v1/people/zoe@example.org/disable")
    answer = await idp.put(f"{USERS}/{made['id']}", json=okta_user())
    assert answer.json()["active"] is False
    await root.post("/api/v1/people/zoe@example.org/enable")
    assert (await idp.put(f"{USERS}/{made['id']}", json=okta_user(active=False))).json()["active"] is False


async def test_new_linux_user_of_a_disabled_person_is_locked(server: Server, idp: httpx.AsyncClient) -> None:
    made = await added(idp)
    await server.apply()
    await idp.put(f"{USERS}/{made['id']}", json=okta_user(active=False, linux_user="zoe2"))
    assert "zoe2" in await server.store.user_changes.locked()


async def test_same_name_or_external_id_is_refused(idp: httpx.AsyncClient) -> None:
    await added(idp)
    other = await added(idp, name="tim@example.org", subject="00u2", linux_user="tim")
    for fields in ({"name": "Zoe@Example.org", "subject": "00u3"}, {"name": "zoe2@example.org"}):
        assert fault(await idp.post(USERS, json=okta_user(**fields))) == (409, "uniqueness")
    answer = await patch(
        idp, f"{USERS}/{other['id']}", {"op": "replace", "path": "userName", "value": "zoe@example.org"}
    )
    assert fault(answer) == (409, "uniqueness")
    await group(idp, "staff")
    assert fault(await idp.post(GROUPS, json={"displayName": "Staff"})) == (409, "uniqueness")


async def test_last_admin_stays(server: Server, idp: httpx.AsyncClient) -> None:
    made = await added(idp)
    ops = await group(idp, "hpc-admins", made["id"])
    for person in await server.store.people.all():
        if person.name not in ("idp", "zoe@example.org"):
            await server.store.people.delete(person.name)
    await server.store.people.change("idp", role=Role.ADMIN, user="")  # only looks, so that it does not count
    for request in (
        idp.delete(f"{USERS}/{made['id']}"),
        patch(idp, f"{USERS}/{made['id']}", {"op": "replace", "value": {"active": False}}),
    ):
        answer = await request
        assert answer.status_code in (403, 409)
    assert (await rights(server))[0] == "admin"
    await patch(idp, f"{GROUPS}/{ops}", {"op": "remove", "path": "members"})
    assert (await rights(server))[0] == "admin"


async def test_pages_have_bounds(idp: httpx.AsyncClient) -> None:
    names = [f"u{number}@example.org" for number in range(5)]
    for number, name in enumerate(names):
        await added(idp, name=name, subject=f"s{number}", linux_user=f"u{number}")
    page = (await idp.get(USERS, params={"startIndex": 2, "count": 2})).json()
    assert (page["totalResults"], page["startIndex"], page["itemsPerPage"]) == (5, 2, 2)
    assert len(page["Resources"]) == 2
    for asked, size in (({"count": 0}, 0), ({"count": -1}, 0), ({"startIndex": -3}, 5), ({"count": 10**6}, 5)):
        page = (await idp.get(USERS, params=asked)).json()
        assert (page["totalResults"], page["itemsPerPage"]) == (5, size)
    assert (await idp.get(USERS, params={"startIndex": 10**30})).json()["Resources"] == []
    assert fault(await idp.get(USERS, params={"count": "many"}))[0] == 400
    config = (await idp.get("/scim/v2/ServiceProviderConfig")).json()
    assert config["filter"] == {"supported": True, "maxResults": MOST_RESULTS}


async def test_filters_name_one_resource(idp: httpx.AsyncClient) -> None:
    made = await added(idp)
    ml = await group(idp, "ml", made["id"])
    for where in ('externalId eq "00u1"', f'id eq "{made["id"]}"', f'{USER_SCHEMA}:userName eq "zoe@example.org"'):
        assert (await idp.get(USERS, params={"filter": where})).json()["totalResults"] == 1, where
    entra = {"filter": f'id eq "{ml}" and members eq "{made["id"]}"', "excludedAttributes": "members"}
    (found,) = (await idp.get(GROUPS, params=entra)).json()["Resources"]
    assert ("members" in found, found["displayName"]) == (False, "ml")
    entra["filter"] = f'id eq "{ml}" and members eq "nobody"'
    assert (await idp.get(GROUPS, params=entra)).json()["totalResults"] == 0
    assert (await idp.get(GROUPS, params={"filter": 'displayName eq "ML"'})).json()["totalResults"] == 1
    shown = (await idp.get(f"{USERS}/{made['id']}", params={"attributes": "userName"})).json()
    assert set(shown) == {"schemas", "id", "meta", "userName"}


@pytest.mark.parametrize(
    "where",
    [
        'userName sw "z"', "userName eq z", 'password eq "x"', 'userName eq "a" or userName eq "b"', 'userName eq "a" and',
        'userName eq "a"; drop', "(" * 400, 'userName eq "' + "x" * MOST_FILTER + '"', 'id eq "\\ud800"', 'id eq ""',
        'userName eq "a" and userName eq "b"',
    ],
)  # fmt: skip
async def test_other_filters_are_refused(idp: httpx.AsyncClient, where: str) -> None:
    assert fault(await idp.get(USERS, params={"filter": where}))[0] == 400


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ({"op": "move", "path": "active"}, "invalidValue"),
        ({"op": "remove"}, "noTarget"),
        ({"op": "remove", "path": "userName"}, "mutability"),
        ({"op": "replace", "path": "a b c", "value": 1}, "invalidPath"),
        ({"op": "replace", "path": "active", "value": "perhaps"}, "invalidValue"),
        ({"op": "replace", "path": "userName", "value": ["x"]}, "invalidValue"),
        ({"op": "replace", "path": 'emails[type sw "x"].value', "value": "x"}, "invalidFilter"),
        ({"op": "add", "path": "emails", "value": [{"value": "x"}] * 99}, "invalidValue"),
        ({"op": "replace", "value": "x"}, "invalidValue"),
    ],
)
async def test_faulty_changes_are_refused(idp: httpx.AsyncClient, operation: dict[str, Any], kind: str) -> None:
    made = await added(idp)
    assert fault(await patch(idp, f"{USERS}/{made['id']}", operation)) == (400, kind)
    assert (await idp.get(f"{USERS}/{made['id']}")).json() == made


async def test_sizes_are_bounded(idp: httpx.AsyncClient) -> None:
    made = await added(idp)
    many = [{"op": "replace", "path": "displayName", "value": "x"}] * (MOST_OPERATIONS + 1)
    assert fault(await patch(idp, f"{USERS}/{made['id']}", *many))[0] == 400
    large = await idp.post(USERS, content=b" " * (MAX_SCIM_BODY + 1))
    assert fault(large)[0] == 413
    for field in ("userName", "externalId"):
        assert fault(await idp.post(USERS, json=okta_user() | {field: "x" * 201}))[0] == 400
        assert fault(await idp.post(USERS, json={k: v for k, v in okta_user().items() if k != field}))[0] == 400
    assert fault(await idp.post(USERS, content=b"{"))[0] == 400
    assert fault(await idp.post(GROUPS, json={"displayName": "x", "members": [{"value": "unknown"}]}))[0] == 400
    assert fault(await idp.post(USERS, json=okta_user(displayName="a\x00b")))[0] == 400


async def test_only_a_token_of_scope_scim_is_admitted_and_nowhere_else(server: Server, idp: httpx.AsyncClient) -> None:
    root = await server.client("root", "admin")
    assert fault(await root.get(USERS))[0] == 403
    answer = await server.anonymous().get(USERS)
    assert (fault(answer)[0], answer.headers["www-authenticate"]) == (401, "Bearer")
    for path in ("/api/v1/me", "/api/v1/people", "/api/v1/clusters", "/people"):
        assert (await idp.get(path)).status_code in (401, 403), path
    assert (await idp.post("/api/v1/tokens", json={})).status_code == 403
    lines = await server.store.audit.search(AuditAsk(result="refused"))
    assert {line.person for line in lines} >= {"idp", "root"}


async def test_only_admins_make_a_token_of_scope_scim_and_only_with_a_provider(server: Server) -> None:
    root, member = await server.client("root", "admin"), await server.client("mem", "member")
    ask = {"scopes": ["scim"]}
    assert (await member.post("/api/v1/tokens", json=ask)).status_code == 403
    assert (await root.post("/api/v1/tokens", json={"scopes": ["scim", "read"]})).status_code == 400
    assert (await root.post("/api/v1/tokens", json={**ask, "cluster": "lab"})).status_code == 400
    server.state.settings = replace(server.state.settings, oidc=None)
    answer = await root.post("/api/v1/tokens", json=ask)
    assert (answer.status_code, answer.json()["hint"]) == (400, "set HEADWAY_OIDC_ISSUER: docs/howto/scim.md")


async def test_server_describes_itself(idp: httpx.AsyncClient) -> None:
    kinds = (await idp.get("/scim/v2/ResourceTypes")).json()
    assert [(row["name"], row["endpoint"]) for row in kinds["Resources"]] == [("User", "/Users"), ("Group", "/Groups")]
    assert (await idp.get("/scim/v2/ResourceTypes/User")).json()["schema"] == USER_SCHEMA
    schemas = (await idp.get("/scim/v2/Schemas")).json()
    assert [row["id"] for row in schemas["Resources"]] == [USER_SCHEMA, GROUP_SCHEMA, HEADWAY_USER_SCHEMA]
    assert (await idp.get(f"/scim/v2/Schemas/{GROUP_SCHEMA}")).json()["name"] == "Group"
    assert fault(await idp.get("/scim/v2/Schemas/none")) == (404, "")
    assert fault(await idp.get("/scim/v2/Me"))[0] == 404
    made = await added(idp)
    shown = {attribute["name"] for attribute in schemas["Resources"][0]["attributes"]}
    assert set(made) - {"id", "meta", "schemas", HEADWAY_USER_SCHEMA} <= shown
