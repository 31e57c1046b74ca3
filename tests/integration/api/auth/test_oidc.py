"""Sign-in through an OpenID provider works only with valid answers, against a real provider on loopback that checks
requests as real ones do."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import resolve_cluster_file
from headway.domain.access.role import Role
from headway.schemas.clusters import Document
from headway.services.cluster_backend import ResolvedCluster
from headway.services.server_settings import Oidc
from headway.store import AuditAsk, Person
from tests.support.api.oidc_provider import Provider, fresh, provider, sign_in_by, use
from tests.support.servers.server_fakes import URL, Server

__all__ = ["fresh", "provider"]  # fixtures


async def test_oidc_user_signs_in_as_viewer_until_admin_sets_role(server: Server, provider: Provider) -> None:
    use(server, provider)
    provider.people("u-1", preferred_username="eve", email="eve@example.org")
    browser, back = await sign_in_by(server, provider, "u-1")
    assert back.status_code == 200, back.text
    cookie = back.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    asked = provider.asked[-1]
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    assert len(asked["state"]) >= 43
    assert len(asked["nonce"]) >= 43
    me = (await browser.get("/api/v1/me")).json()
    assert (me["person"], me["role"]) == ("eve", "viewer")
    assert (await browser.get("/api/v1/people")).status_code == 403
    admin = await server.client("ann")
    await admin.put("/api/v1/people/eve", json={"role": "member", "user": "eve"})
    assert (await browser.get("/api/v1/me")).json()["role"] == "member"
    again, _ = await sign_in_by(server, provider, "u-1")  # the same person, with what the admin said
    assert (await again.get("/api/v1/me")).json()["role"] == "member"
    assert len([one for one in await server.store.people.all() if one.subject]) == 1


@pytest.mark.parametrize("claim", ["acr", "amr"])
async def test_sign_in_without_the_required_factor_is_refused(server: Server, provider: Provider, claim: str) -> None:
    use(server, provider, **{claim: ("mfa", "hwk")})
    for said in ({}, {claim: ["pwd"]}, {claim: "pwd"}, {claim: 2}):
        provider.people("u-8", preferred_username="eve", **said)
        browser, back = await sign_in_by(server, provider, "u-8")
        assert (back.status_code, "too weak" in back.text) == (401, True), said
        assert (await browser.get("/api/v1/me")).status_code == 401
    assert provider.asked[-1].get("acr_values") == ("mfa hwk" if claim == "acr" else None)
    provider.people("u-8", preferred_username="eve", **{claim: ["pwd", "mfa"]})
    _, back = await sign_in_by(server, provider, "u-8")
    assert back.status_code == 200, back.text


async def test_browsers_sign_in_by_the_provider_only(server: Server, provider: Provider) -> None:
    use(server, provider)
    admin = await server.client("ann", "admin")
    link = (await admin.post("/api/v1/signin-links")).json()["url"].removeprefix(URL)
    _, token = await server.store.tokens.create("ann", label="laptop")
    use(server, provider, only=True)
    browser = server.anonymous(origin=URL)
    assert (await browser.get(link)).status_code == 403
    answer = await browser.post("/signin", data={"person": "ann", "token": token})
    assert answer.status_code == 403
    refused = await admin.post("/api/v1/signin-links")
    assert (refused.status_code, provider.issuer.partition("//")[2] in refused.text) == (403, True)
    assert (await browser.get("/api/v1/me")).status_code == 401
    page = (await browser.get("/signin")).text
    assert ("Sign in with" in page, "headway token link" in page, 'name="token"' in page) == (True, False, False)
    provider.people("u-9", preferred_username="eve")
    _, back = await sign_in_by(server, provider, "u-9")
    assert back.status_code == 200, back.text


async def test_oidc_claims_set_role_and_linux_user(server: Server, provider: Provider) -> None:
    roles = (("gpu-admins", "admin"), ("gpu-ops", "operator"))
    use(server, provider, role_claim="groups", roles=roles, user_claim="preferred_username")
    provider.people("u-3", preferred_username="olga", groups=["staff", "gpu-ops"])
    browser, back = await sign_in_by(server, provider, "u-3")
    assert back.status_code == 200, back.text
    assert (await browser.get("/api/v1/me")).json()["role"] == "operator"
    _, token = await server.store.tokens.create("olga", label="laptop")
    provider.people("u-3", preferred_username="olga", groups=["staff"])
    _, back = await sign_in_by(server, provider, "u-3")
    assert back.status_code == 403
    assert (await browser.get("/api/v1/me")).status_code == 401, "the earlier session has ended"
    assert await server.store.tokens.holder(token) is None
    removed = (await server.store.audit.search(AuditAsk(action="person.remove")))[0]
    assert (removed.target, removed.detail["by"]) == ("olga", "sign-in provider")
    refused = (await server.store.audit.search(AuditAsk(action="signin")))[0]
    assert (refused.result, refused.detail["how"]) == ("refused", "provider")


async def test_sign_in_without_the_role_claim_is_refused_and_deletes_no_person(
    server: Server, provider: Provider
) -> None:
    use(server, provider, role_claim="groups", roles=(("gpu-ops", "operator"),))
    provider.people("u-6", preferred_username="ines", groups=["gpu-ops"])
    await sign_in_by(server, provider, "u-6")
    _, token = await server.store.tokens.create("ines", label="laptop")
    provider.people("u-6", preferred_username="ines")
    browser, back = await sign_in_by(server, provider, "u-6")
    assert back.status_code == 403
    assert "the sign-in provider sent no claim groups" in back.text
    assert (await browser.get("/api/v1/me")).status_code == 401
    assert await server.store.tokens.holder(token) is not None


async def test_last_admin_is_refused_but_not_removed(server: Server, provider: Provider) -> None:
    use(server, provider, role_claim="groups", roles=(("gpu-admins", "admin"),), user_claim="preferred_username")
    provider.people("u-7", preferred_username="rosa", groups=["gpu-admins"])
    await sign_in_by(server, provider, "u-7")
    for other in await server.store.people.all():
        if other.subject is None:
            await server.store.people.delete(other.name)
    provider.people("u-7", preferred_username="rosa", groups=["staff"])
    _, back = await sign_in_by(server, provider, "u-7")
    assert back.status_code == 403
    assert [person.name for person in await server.store.people.all()] == ["rosa"]


async def test_oidc_provider_unreachable_or_with_wrong_issuer_answers_503(server: Server, provider: Provider) -> None:
    for issuer in ("http://127.0.0.1:9", provider.issuer.replace("127.0.0.1", "localhost") + "/"):
        server.state.settings = replace(server.state.settings, oidc=Oidc(issuer, "headway"))
        answer = await server.anonymous().get("/signin/oidc")
        assert answer.status_code == 503, issuer
        assert "sign-in provider" in answer.text
    assert URL not in server.anonymous().cookies


async def test_failed_connection_to_the_provider_is_logged(server: Server) -> None:
    """Of TLS too: the provider may present a certificate that no authority of this machine has signed."""
    server.state.settings = replace(server.state.settings, oidc=Oidc("https://127.0.0.1:9", "headway"))
    with capture_logs() as logged:
        assert (await server.anonymous().get("/signin/oidc")).status_code == 503
    (line,) = [line for line in logged if line["event"] == "the sign-in provider can't be used"]
    assert (line["log_level"], line["issuer"]) == ("warning", "https://127.0.0.1:9")
    assert line["error"]


async def resolve_file(document: Document) -> ResolvedCluster:
    return ResolvedCluster(*resolve_cluster_file(document.spec, load_catalogue({}), owner=document.owner))


async def test_group_claim_puts_a_person_into_teams_until_the_group_is_removed(
    server: Server, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = (("hpc-red", "red"), ("hpc-blue", "lab/blue"), ("hpc-blue", "other/red"), ("hpc-green", "green"))
    use(
        server,
        provider,
        role_claim="groups",
        roles=(("hpc-lead", Role.LEAD), ("hpc", Role.MEMBER)),
        team_claim="groups",
        teams=groups,
        user_claim="preferred_username",
    )
    monkeypatch.setattr(server.backend.lifecycle, "resolve", resolve_file)
    await server.apply(teams={"red": {"users": ["bob"]}, "blue": {"users": ["bob"]}})

    async def teams() -> dict[str, tuple[str, ...]]:
        _, cluster = await server.state.clusters.get("lab")
        return {team.name: team.users for team in cluster.teams if team.name != "default"}

    provider.people("u-20", preferred_username="tara", groups=["hpc", "hpc-lead", "hpc-blue", "hpc-green", 7])
    browser, back = await sign_in_by(server, provider, "u-20")
    assert back.status_code == 200, back.text
    assert await teams() == {"red": ("bob",), "blue": ("bob", "tara")}, "green is no team of the file"
    admin = await server.client("ann")
    found = (await admin.get("/api/v1/people/tara")).json()
    assert (found["role"], found["teams"], found["provider_role"]) == ("lead", {"lab": ["blue"]}, True)
    assert found["provider_teams"] == ["green", "lab/blue", "other/red"]
    page = (await admin.get("/people")).text
    assert page.count("from OIDC") == 2
    document = (await admin.get("/api/v1/clusters/lab/document")).json()
    assert document["spec"]["teams"]["blue"]["users"] == ["bob"], "the file is as its people wrote it"
    _, token = await server.store.tokens.create("tara")
    by_token = server.anonymous(authorization=f"Bearer {token}")
    assert (await by_token.get("/api/v1/me")).json()["role"] == "lead"
    provider.people("u-20", preferred_username="tara", groups=["hpc"])
    await sign_in_by(server, provider, "u-20")
    assert await teams() == {"red": ("bob",), "blue": ("bob",)}
    assert (await by_token.get("/api/v1/me")).json()["role"] == "member", "at the next use of a token"
    assert (await browser.get("/api/v1/me")).json()["role"] == "member"
    changed = await server.store.audit.search(AuditAsk(action="person.teams"))
    assert [line.detail["teams"] for line in changed] == [[], ["green", "lab/blue", "other/red"]]


async def test_person_without_the_team_claim_is_in_no_team_of_the_provider(server: Server, provider: Provider) -> None:
    use(server, provider, team_claim="groups", teams=(("hpc-red", "red"),))
    for claims in ({}, {"groups": {"hpc-red": True}}, {"groups": "hpc-redder"}, {"groups": None}):
        provider.people("u-21", preferred_username="uma", **claims)
        _, back = await sign_in_by(server, provider, "u-21")
        assert back.status_code == 200
        person = await server.store.people.get("uma")
        assert person is not None
        assert person.provider_teams == ()


async def test_people_are_read_once_a_second_for_the_teams_of_clusters(
    server: Server, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(server, provider, team_claim="groups", teams=(("ml", "red"),))
    reads, read = 0, server.store.people.all

    async def counted() -> tuple[Person, ...]:
        nonlocal reads
        reads += 1
        return await read()

    monkeypatch.setattr(server.store.people, "all", counted)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    for _ in range(3):
        await server.state.clusters._provider_members("lab")
    assert reads == 1
    await server.store.people.set_role("zoe", Role.MEMBER)
    await server.state.clusters._provider_members("lab")
    assert reads == 2, "a change of this server counts at once"
