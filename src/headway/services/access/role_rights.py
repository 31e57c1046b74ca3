"""Rights that a role and a token's scopes give, and the principal: the person behind a request, who has them.

Roles are not ranks: a lead may read a log that an operator may not. A role is a set of rights (`ROLE_RIGHTS`), and a
token narrows that set to its scopes (`TOKEN_SCOPES`). The right that an endpoint or page needs is the type of its
parameter (`who: Admin`), from `api/auth/dependencies.py`. Rights that depend on the owner or team of a job are in
`ownership_rights`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.domain.access.role import Role
from headway.domain.access.token_scope import TokenScope
from headway.errors import NotAllowed, Refused, SignInAgain
from headway.store.db.rows import Person
from headway.validation.syntax_rules import user_name_fault, user_name_from

RECENT_SIGN_IN_S = 15 * 60.0


class Right(StrEnum):
    """One thing a person may do; the value completes "NAME may not ..."."""

    READ = "see clusters, nodes and the queue"
    OWN_TOKENS = "create their own tokens and sign-in links"
    RUN_JOBS = "run anything on a cluster"
    PLAN_CLUSTER = "plan a cluster"
    LEAD_TEAM = "act on the jobs of a team they lead"
    APPROVE_MODELS = "approve models"
    OPERATE_NODES = "act on nodes and incidents"
    PROVISION = "provision people by SCIM"
    ADMIN = "do this"  # apply, down, other people, settings, the audit trail, another Linux user, any job


_VIEWER = frozenset({Right.READ, Right.OWN_TOKENS})
_MEMBER = _VIEWER | {Right.RUN_JOBS, Right.PLAN_CLUSTER}
ROLE_RIGHTS: dict[Role, frozenset[Right]] = {
    Role.VIEWER: _VIEWER,
    Role.MEMBER: _MEMBER,
    Role.LEAD: _MEMBER | {Right.LEAD_TEAM, Right.APPROVE_MODELS},
    Role.OPERATOR: _MEMBER | {Right.OPERATE_NODES, Right.APPROVE_MODELS},
    Role.ADMIN: frozenset(Right),
}

# What each scope of a token permits, if the person's role does too. Only `all` can create further tokens, sign-in links
# and sessions, and approve models, because an approval is a person's, not a program's; only `scim` can provision people,
# and nothing else.
TOKEN_SCOPES: dict[str, frozenset[Right]] = {
    TokenScope.READ: frozenset({Right.READ}),
    TokenScope.PLAN: frozenset({Right.READ, Right.PLAN_CLUSTER}),
    TokenScope.SUBMIT: frozenset({Right.READ, Right.RUN_JOBS, Right.LEAD_TEAM}),
    TokenScope.OPERATE: frozenset({Right.READ, Right.OPERATE_NODES}),
    TokenScope.ADMIN: frozenset({Right.READ, Right.PLAN_CLUSTER, Right.ADMIN}),
    TokenScope.SCIM: frozenset({Right.PROVISION}),
    TokenScope.ALL: frozenset(Right) - {Right.PROVISION},
}


@dataclass(frozen=True, slots=True)
class Principal:
    """The person behind a request, and what their token or session lets them do."""

    person: str
    role: Role
    scopes: tuple[str, ...] = ("all",)
    only_cluster: str = ""  # the only cluster that their token is valid for; "" is every cluster
    address: str = ""  # IP address that the request came from
    assigned_user: str | None = None  # Linux user set by an admin or the sign-in provider; "" if they have none
    idempotency_key: str = (
        ""  # names this request if it came with an Idempotency-Key header (a hash, see api/http/idempotency)
    )
    first_sent_at: float = 0.0  # unix seconds when a request with this key first came
    authenticated_at: float | None = None  # of a browser session: when the person proved who they are; None: a token
    provider_session: str | None = None  # the sign-in provider's session behind it, as in store.SignIn
    token_id: str = ""  # the token behind it, also behind a browser session that was opened with one

    @property
    def user(self) -> str:
        """Returns the person's Linux user on clusters: their own name, except for names that no cluster may have
        (root)."""
        return user_name_from(self.person) if self.assigned_user is None else self.assigned_user

    def may(self, right: Right) -> bool:
        """Returns whether both the role and one of the token's scopes include the right."""
        return right in ROLE_RIGHTS[self.role] and any(right in TOKEN_SCOPES[scope] for scope in self.scopes)

    def require(self, right: Right, what: str = "") -> None:
        """Raises NotAllowed without the right. `what` completes "NAME may not ..." if the right's own text is too
        general."""
        if self.may(right):
            return
        what = what or right.value
        if right in ROLE_RIGHTS[self.role]:
            raise NotAllowed(
                f"this token of {self.person} is for {', '.join(self.scopes)}, it may not {what}",
                hint="create one with the scope for it: headway token create",
            )
        others = [role for role in ROLE_RIGHTS if right in ROLE_RIGHTS[role]]
        raise NotAllowed(
            f"{self.person} is {_with_article(self.role)} and may not {what}", hint=f"ask {_with_article(others[0])}"
        )

    def require_recent_sign_in(self, now: float, what: str) -> None:
        """Raises SignInAgain in a browser session whose person proved who they are too long ago for something that can't
        be undone; `what` completes "sign in again to ...". A token passes: it was made for programs, with a scope that
        its person chose, and no other person can use it from an unlocked screen."""
        if self.authenticated_at is None or now - self.authenticated_at <= RECENT_SIGN_IN_S:
            return
        raise SignInAgain(
            f"sign in again to {what}",
            hint=f"what can't be undone needs a sign-in within the last {RECENT_SIGN_IN_S // 60:.0f} minutes",
        )

    def may_see_cluster(self, cluster: str) -> bool:
        """Returns False for every cluster except the one that the token is for."""
        return self.only_cluster in ("", cluster)

    def require_cluster(self, cluster: str) -> None:
        """Raises NotAllowed for every cluster except the one that the token is for."""
        if not self.may_see_cluster(cluster):
            raise NotAllowed(f"this token of {self.person} is only for cluster {self.only_cluster}")

    def user_to_act_as(self, requested: str) -> str:
        """Returns the Linux user to run a job as: the person's own, or any for admins. Raises NotAllowed, and Refused
        for an invalid name."""
        self.require(Right.RUN_JOBS)
        if not requested or requested == self.user:
            return self.user
        if not self.may(Right.ADMIN):
            raise NotAllowed(f"{self.person} may not act as {requested}", hint="only an admin may")
        fault = "" if requested == "root" else user_name_fault(requested)
        if fault:
            raise Refused(f"the user name {requested!r} {fault}")
        return requested

    def command_user(self, requested: str) -> str:
        """Returns the Linux user to run a login-node command as: like `user_to_act_as`, but an admin's default is root."""
        return self.user_to_act_as(requested or ("root" if self.may(Right.ADMIN) else ""))


def principal_for(
    person: Person, address: str = "", scopes: tuple[str, ...] = ("all",), only_cluster: str = ""
) -> Principal:
    """Returns the principal of a stored person. A person without a Linux user (new from the sign-in provider) is a
    viewer."""
    role = person.role if person.user != "" else Role.VIEWER
    return Principal(person.name, role, scopes, only_cluster, address, person.user)


def _with_article(role: str) -> str:
    return f"an {role}" if role[0] in "ao" else f"a {role}"
