"""Who asks, and what they may do. Decided here alone.

viewer    reads clusters, nodes and the queue
member    and submits; cancels and reads their own jobs, always as the Linux user of their own name
lead      and does so with the jobs of the teams whose `leads` name them in the cluster's file
operator  a member who also acts on nodes and incidents; other people's jobs and logs are not theirs
admin     everything: applies, takes down, acts as another user, people, settings, the audit trail

A role is no rank: an operator may not read a log that a lead may. What a role allows is a set of rights (`RIGHTS`), what a
token allows is that set cut down to its scopes (`SCOPES`), and whose job it is decides the rest (`may_touch`).

An endpoint names its right as a parameter: `who: Anyone | Member | Operator | Admin`. A new one needs a row in
tests/support/access_table.py, which says who must get through and who must not.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Protocol
from urllib.parse import urlsplit

import structlog
from fastapi import Depends, Path, Request
from pydantic import BeforeValidator

from headway.api.auth.login_throttle import address_key
from headway.domain.cluster import Cluster
from headway.errors import HeadwayError, NotAllowed, NotSignedIn, Refused, TooManyAtOnce
from headway.services.context import AppState
from headway.store import Locked
from headway.store.db.rows import Person
from headway.validation.syntax_rules import user_name_fault, user_name_from

log = structlog.get_logger("headway.api")
MOST_NUMBER = 2**31 - 1  # what the database's columns hold; Slurm's own numbers are far below
MOST_AT_ONCE = 16  # commands that one person, other than an admin, may have running at once
MOST_FOLLOWED = 64  # logs that one person, other than an admin, may have open at once
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Right(StrEnum):
    """One thing a person may do."""

    READ = "look at clusters, nodes and the queue"
    ACCOUNT = "make tokens and sign-in links of their own"
    WORK = "run anything on a cluster"
    PLAN = "plan a cluster"
    TEAM = "act on the jobs of a team they lead"
    NODES = "act on nodes and incidents"
    ADMIN = "do this"  # apply, down, other people, settings, the audit trail, another's Linux user, anybody's job


_READS = frozenset({Right.READ, Right.ACCOUNT})
_WORKS = _READS | {Right.WORK, Right.PLAN}
RIGHTS: dict[str, frozenset[Right]] = {
    "viewer": _READS,
    "member": _WORKS,
    "lead": _WORKS | {Right.TEAM},
    "operator": _WORKS | {Right.NODES},
    "admin": frozenset(Right),
}

# What a token may be cut down to. None of them but `all` makes further tokens.
SCOPES: dict[str, frozenset[Right]] = {
    "read": frozenset({Right.READ}),
    "jobs": frozenset({Right.READ, Right.WORK, Right.TEAM}),
    "nodes": frozenset({Right.READ, Right.NODES}),
    "all": frozenset(Right),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """The person behind a request, and what their token or session lets them do."""

    person: str
    role: str
    scopes: tuple[str, ...] = ("all",)
    only: str = ""  # the one cluster that their token is for; "" = every one
    address: str = ""  # where the request came from
    login: str | None = None  # their Linux user where an admin or the sign-in provider has said it
    deed: str = ""  # names this very request, where it came with a key of its own (api/http/idempotency.py), and
    deed_at: float = 0.0  # when it first came

    @property
    def user(self) -> str:
        """Their Linux user on the clusters: their own name, except for those no cluster may have (root)."""
        return user_name_from(self.person) if self.login is None else self.login

    def may(self, right: Right) -> bool:
        return right in RIGHTS[self.role] and any(right in SCOPES[scope] for scope in self.scopes)

    def need(self, right: Right, what: str = "") -> None:
        """Raises NotAllowed without the right; `what` words it for this case."""
        if self.may(right):
            return
        what = what or right.value
        if right in RIGHTS[self.role]:
            raise NotAllowed(
                f"this token of {self.person} is for {', '.join(self.scopes)}, it may not {what}",
                hint="headway token create makes one for more",
            )
        others = [role for role in RIGHTS if right in RIGHTS[role]]
        raise NotAllowed(f"{self.person} is {_a(self.role)} and may not {what}", hint=f"ask {_a(others[0])}")

    def reaches(self, cluster: str) -> bool:
        """False for another cluster than the one that the token is for."""
        return self.only in ("", cluster)

    def must_reach(self, cluster: str) -> None:
        """Raises NotAllowed for another cluster than the one that the token is for."""
        if not self.reaches(cluster):
            raise NotAllowed(f"this token of {self.person} is for the cluster {self.only} alone")

    def at_login(self, asked: str) -> str:
        """As `acting`, for a command on the login: where nobody is named, an admin's is root's."""
        return self.acting(asked or ("root" if self.may(Right.ADMIN) else ""))

    def acting(self, asked: str) -> str:
        """The Linux user to act as: one's own, or for admins any."""
        self.need(Right.WORK)
        if not asked or asked == self.user:
            return self.user
        if not self.may(Right.ADMIN):
            raise NotAllowed(f"{self.person} may not act as {asked}", hint="only an admin may")
        fault = "" if asked == "root" else user_name_fault(asked)
        if fault:
            raise Refused(f"the user name {asked!r} {fault}")
        return asked


def state_of(request: Request) -> AppState:
    state: AppState = request.app.state.headway
    return state


async def _state(request: Request) -> AppState:
    """For FastAPI, which sends what is not async to another thread and back: that costs more than the rest of a request."""
    return state_of(request)


async def principal_of(request: Request) -> Principal | None:
    """The person of the request's token or session; None when there is neither. NotSignedIn for a bad one, NotAllowed
    for one that is for another cluster."""
    state = state_of(request)
    header = request.headers.get("authorization", "")
    if header:
        scheme, _, token = header.partition(" ")
        held = await state.store.holder_of_token(token.strip()) if scheme.lower() == "bearer" else None
        if held is None:
            await _failed(state, request)
            raise NotSignedIn("the token is unknown or has expired", hint="HEADWAY_TOKEN, or `headway token create`")
        return _known(request, principal(held.person, request, held.scopes, held.cluster))
    cookie = request.cookies.get(state.settings.cookie, "")
    if not cookie:
        return None
    person = await state.store.person_of_session(cookie)
    if person is None:
        raise NotSignedIn("the session has ended", hint="ask `headway server status` for a new sign-in link")
    if request.method not in SAFE_METHODS:
        own_page(request)
    return _known(request, principal(person, request))


async def signed_in(request: Request) -> Principal:
    principal = await principal_of(request)
    if principal is None:
        raise NotSignedIn("who are you? the request has no token", hint="HEADWAY_TOKEN, or sign in by link")
    return principal


def needs(right: Right, *, anywhere: bool = False) -> Callable[[Request], Awaitable[Principal]]:
    """A dependency: the person of the request, who has the right. A token for one cluster is good only below that
    cluster's address, and `anywhere` for what tells one cluster's things from another's by `who.reaches`."""

    async def who(request: Request) -> Principal:
        principal = await signed_in(request)
        cluster = request.path_params.get("name", "")
        if cluster or not anywhere:
            principal.must_reach(cluster)
        principal.need(right)
        return principal

    return who


def own_page(request: Request) -> None:
    """A browser writes only from our own pages: the cookie alone proves nothing about who made it send the request."""
    origin, ours = request.headers.get("origin", ""), state_of(request).settings.url
    if origin and origin == ours:
        return
    place = urlsplit(origin).netloc
    if place and place == request.headers.get("host", "") and place != urlsplit(ours).netloc:
        return  # by another of our names: loopback's, an address
    raise NotAllowed("the request comes from another site's page", hint="use the page of this server, or a token")


async def _failed(state: AppState, request: Request) -> None:
    """A token that is none: counted by address. A good token is never held back, whoever else guesses from there."""
    here, now = address_key(address_of(request)), state.clock()
    state.tries.check(now, here)
    if state.tries.failed(now, here):
        await state.store.note("", "token.unknown", request.url.path, address=address_of(request), result="refused")


def address_of(request: Request) -> str:
    """Where the request came from; behind a reverse proxy that the server was told of, what that proxy says."""
    return request.client.host if request.client else ""


def principal_user(person: Person) -> str:
    """Their Linux user on the clusters; "" for who has none."""
    return user_name_from(person.name) if person.user is None else person.user


def principal(
    person: Person, request: Request | None = None, scopes: tuple[str, ...] = ("all",), only: str = ""
) -> Principal:
    """Who has no Linux user (people of the sign-in provider, until an admin gives them one) is a viewer."""
    role = person.role if person.user != "" else "viewer"
    return Principal(person.name, role, scopes, only, address_of(request) if request else "", person.user)


def _known(request: Request, principal: Principal) -> Principal:
    """Kept with the request, so that a refusal later on is noted with its person's name."""
    name, at = request.scope.get("state", {}).get("deed", ("", 0.0))
    principal = replace(principal, deed=name, deed_at=at) if name else principal
    request.state.principal = principal
    return principal


def _a(role: str) -> str:
    return f"an {role}" if role[0] in "ao" else f"a {role}"


def digits(word: object) -> object:
    """Pydantic takes 8_3, the third task of job 8, for 83."""
    if isinstance(word, str) and not re.fullmatch(r"0|[1-9][0-9]{0,18}", word):
        raise ValueError("not a number; a task of an array goes by its job's number and ?task=")
    return word


Number = Annotated[int, BeforeValidator(digits), Path(ge=0, le=MOST_NUMBER)]  # of a job, an incident
State = Annotated[AppState, Depends(_state)]
Anyone = Annotated[Principal, Depends(needs(Right.READ))]
Everywhere = Annotated[Principal, Depends(needs(Right.READ, anywhere=True))]  # of many clusters: use who.reaches
Owner = Annotated[Principal, Depends(needs(Right.ACCOUNT))]  # of tokens and sessions
Member = Annotated[Principal, Depends(needs(Right.WORK))]
Planner = Annotated[Principal, Depends(needs(Right.PLAN))]
Operator = Annotated[Principal, Depends(needs(Right.NODES))]
Admin = Annotated[Principal, Depends(needs(Right.ADMIN))]


class Somebodys(Protocol):
    """A job, a record of one, or anything else that belongs to a Linux user and, where it is known, to a team."""

    @property
    def user(self) -> str: ...


async def may_touch(state: AppState, cluster: Cluster, who: Principal, thing: Somebodys, what: str) -> bool:
    """Whether Headway's own Slurm operator must act, since Slurm would refuse this person; False for one's own.

    Raises NotAllowed unless it is their own, a job of a team they lead, or they are an admin. `what` begins the sentence:
    "cancel job 7"."""
    who.need(Right.WORK, what)
    if who.may(Right.ADMIN):
        return thing.user != who.user
    await must_not_have_left(state, cluster, who)
    if thing.user == who.user:
        return False
    if not _leads(cluster, who, thing):
        raise NotAllowed(
            f"{who.person} may not {what}: it belongs to {thing.user}",
            hint="its owner may, a lead of its team and an admin",
        )
    return True


async def must_own(state: AppState, cluster: Cluster, who: Principal, thing: Somebodys, what: str) -> None:
    """For what runs as the thing's user again: a lead may end a member's job, but runs nothing in that member's name."""
    if thing.user != who.user and not who.may(Right.ADMIN):
        who.need(Right.WORK, what)
        raise NotAllowed(f"{who.person} may not {what}: it belongs to {thing.user}", hint="its owner may, and an admin")
    await may_touch(state, cluster, who, thing, what)


def _leads(cluster: Cluster, who: Principal, thing: Somebodys) -> bool:
    """Whether it is of a team that they lead. A thing that names no team is of the only team its user is in."""
    if not who.may(Right.TEAM):
        return False
    account = getattr(thing, "account", "")
    teams = (account,) if account else next((user.teams for user in cluster.users if user.name == thing.user), ())
    mine = {team.name for team in cluster.teams if who.user in team.leads}
    return bool(teams) and mine.issuperset(teams)


def sees_usage(cluster: Cluster, who: Principal, team: str) -> bool:
    """Whether a team's use is theirs to see: their own teams', or as an admin or operator all."""
    if who.may(Right.ADMIN) or who.may(Right.NODES):
        return True
    return any(one.name == team and who.user in (*one.users, *one.leads) for one in cluster.teams)


async def workplace(state: AppState, name: str, who: Principal) -> Cluster:
    """The cluster, for somebody who is about to work there. Raises NotFound, and NotAllowed for who has left it."""
    _, cluster = await state.cluster(name)
    await must_not_have_left(state, cluster, who)
    return cluster


async def must_not_have_left(state: AppState, cluster: Cluster, who: Principal) -> None:
    """Raises NotAllowed for somebody whom the cluster's file named once and names no more; an admin may all the same."""
    if who.may(Right.ADMIN) or who.user in {user.name for user in cluster.users}:
        return
    if who.user in await state.store.users_of(cluster.name):
        raise NotAllowed(f"{who.user} may not work on {cluster.name} any more", hint="ask an admin of the cluster")


def connection(state: AppState, who: Principal) -> contextlib.AbstractContextManager[None]:
    """A command on a cluster holds one of its few connections for as long as it runs: no member may hold them all.
    Raises TooManyAtOnce."""
    return _place(state.commands, who, MOST_AT_ONCE, "commands", "are running already", "wait until one has ended")


def following(state: AppState, who: Principal) -> contextlib.AbstractContextManager[None]:
    """The same of a log, which is read for hours. Raises TooManyAtOnce."""
    return _place(state.followed, who, MOST_FOLLOWED, "logs", "are open already", "close one of them")


@contextlib.contextmanager
def _place(taken: Counter[str], who: Principal, most: int, what: str, how: str, hint: str) -> Iterator[None]:
    if taken[who.person] >= most and not who.may(Right.ADMIN):
        raise TooManyAtOnce(f"{most} {what} of {who.person} {how}", hint=hint)
    taken[who.person] += 1
    try:
        yield
    finally:
        taken[who.person] -= 1
        if not taken[who.person]:
            del taken[who.person]


async def audit(state: AppState, who: Principal, action: str, target: str, **detail: Any) -> None:
    """Every write leaves a line. Never pass a secret."""
    await state.store.note(who.person, action, target, detail, address=who.address)


async def note_failure(request: Request, error: Exception) -> None:
    """The line of what was not done: all that a person was refused, and every write that failed. Called where errors
    become answers, so that no endpoint needs to think of it. What a bug says stays in the log."""
    who: Principal | None = getattr(request.state, "principal", None)
    was_refused = isinstance(error, NotAllowed)
    if who is None or not (was_refused or request.method not in SAFE_METHODS):
        return
    if isinstance(error, Locked):  # nor could the line be written, and trying takes as long again
        log.warning("a failure could not be noted", person=who.person, path=request.url.path)
        return
    action = getattr(request.scope.get("route"), "name", "") or request.method
    target = "/".join(str(value) for value in request.path_params.values())
    why = error.message[:200] if isinstance(error, HeadwayError) else f"a bug ({type(error).__name__})"
    detail = {"method": request.method, "path": request.url.path[:200], "why": why}
    result = "refused" if was_refused else "failed"
    try:
        await state_of(request).store.note(who.person, action, target, detail, address=who.address, result=result)
    except Exception:  # the answer matters more than its line: the database may be what failed
        log.exception("a refusal could not be noted", person=who.person, action=action)
