"""Who asks, and what they may do.

viewer   reads clusters, nodes and the queue
member   and submits, cancels and reads logs, always as the Linux user of their own name
admin    and applies, takes down, acts as another user, gives out tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Request

from headway.api.state import AppState
from headway.domain.cluster import Cluster
from headway.errors import NotAllowed, NotSignedIn, Refused
from headway.spec.words import user_name_fault, user_name_from
from headway.store.records import ROLES, Person

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Principal:
    """The person behind a request."""

    person: str
    role: str

    @property
    def user(self) -> str:
        """Their Linux user on the clusters: their own name, except for those no cluster may have (root)."""
        return user_name_from(self.person)

    def has(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    def need(self, role: str, what: str) -> None:
        """Raises NotAllowed unless this person has at least the role."""
        if not self.has(role):
            raise NotAllowed(f"{self.person} is {_a(self.role)} and may not {what}", hint=f"ask {_a(role)}")

    def acting(self, asked: str) -> str:
        """The Linux user to act as: one's own, or for admins any."""
        self.need("member", "run anything on a cluster")
        if not asked or asked == self.user:
            return self.user
        if not self.has("admin"):
            raise NotAllowed(f"{self.person} may not act as {asked}", hint="only an admin may")
        fault = "" if asked == "root" else user_name_fault(asked)
        if fault:
            raise Refused(f"the user name {asked!r} {fault}")
        return asked


def state_of(request: Request) -> AppState:
    state: AppState = request.app.state.headway
    return state


async def principal_of(request: Request) -> Principal | None:
    """The person of the request's token or session; None when there is neither. NotSignedIn for a bad one."""
    state = state_of(request)
    header = request.headers.get("authorization", "")
    if header:
        scheme, _, token = header.partition(" ")
        person = await state.store.person_of_token(token.strip()) if scheme.lower() == "bearer" else None
        if person is None:
            raise NotSignedIn("the token is unknown or has expired", hint="HEADWAY_TOKEN, or `headway token create`")
        return _principal(person)
    cookie = request.cookies.get(state.settings.cookie, "")
    if not cookie:
        return None
    person = await state.store.person_of_session(cookie)
    if person is None:
        raise NotSignedIn("the session has ended", hint="ask `headway server status` for a new sign-in link")
    if request.method not in SAFE_METHODS:
        _same_site(request)
    return _principal(person)


async def signed_in(request: Request) -> Principal:
    principal = await principal_of(request)
    if principal is None:
        raise NotSignedIn("who are you? the request has no token", hint="HEADWAY_TOKEN, or sign in by link")
    return principal


async def member(request: Request) -> Principal:
    principal = await signed_in(request)
    principal.need("member", "do this")
    return principal


async def admin(request: Request) -> Principal:
    principal = await signed_in(request)
    principal.need("admin", "do this")
    return principal


def _same_site(request: Request) -> None:
    """A browser writes only from our own pages: the cookie alone proves nothing about who made it send the request."""
    origin = request.headers.get("origin", "")
    if origin and urlsplit(origin).netloc == request.headers.get("host", "") and origin != "null":
        return
    raise NotAllowed("the request comes from another site's page", hint="use the page of this server, or a token")


def _principal(person: Person) -> Principal:
    return Principal(person.name, person.role)


def _a(role: str) -> str:
    return f"an {role}" if role == "admin" else f"a {role}"


State = Annotated[AppState, Depends(state_of)]
Anyone = Annotated[Principal, Depends(signed_in)]
Member = Annotated[Principal, Depends(member)]
Admin = Annotated[Principal, Depends(admin)]


async def workplace(state: AppState, name: str, who: Principal) -> Cluster:
    """The cluster, for somebody who is about to work there. Raises NotFound, and NotAllowed for who has left it."""
    _, cluster = await state.cluster(name)
    await must_not_have_left(state, cluster, who)
    return cluster


async def must_not_have_left(state: AppState, cluster: Cluster, who: Principal) -> None:
    """Raises NotAllowed for somebody whom the cluster's file named once and names no more; an admin may all the same."""
    if who.has("admin") or who.user in {user.name for user in cluster.users}:
        return
    if who.user in await state.store.users_of(cluster.name):
        raise NotAllowed(f"{who.user} may not work on {cluster.name} any more", hint="ask an admin of the cluster")


async def audit(state: AppState, who: Principal, action: str, target: str, **detail: Any) -> None:
    """Every write leaves a line. Never pass a secret."""
    await state.store.note(who.person, action, target, detail)
