"""The tables of people and what they may do: tokens, sessions, sign-in, SCIM, locks, secrets of jobs and the audit trail.
Columns are as in `store.db.metadata`."""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    event,
    false,
)

from headway.store.db.metadata import metadata

people = Table(
    "people",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("user", String(64)),  # their Linux user; NULL: same as their name, "": none
    Column("subject", String(500)),  # of the sign-in provider: its issuer, and the person's id there
    # Teams that the sign-in provider says they are in: names, or CLUSTER/TEAM
    Column("provider_teams", JSON, nullable=False, server_default="[]"),
    Column("disabled", Boolean, nullable=False, server_default=false()),
    Index("uq_people_subject", "subject", unique=True),
)

# What the identity provider sent by SCIM about a person. `id` is the resource's id.
provisioned_users = Table(
    "provisioned_users",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("person", String(64), ForeignKey("people.name", ondelete="CASCADE"), nullable=False, unique=True),
    Column("user_name", String(200), nullable=False),
    Column("external_id", String(200), nullable=False),  # the person's id at the provider
    Column("attributes", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("changed_at", Float, nullable=False),
    # Counts the changes of the groups that the user is in. The person's rights are those of `rights_version`.
    Column("groups_version", Integer, nullable=False, server_default="0"),
    Column("rights_version", Integer, nullable=False, server_default="0"),
)

provisioned_groups = Table(
    "provisioned_groups",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("display_name", String(200), nullable=False),
    Column("external_id", String(200), nullable=False),  # "": the provider sent none
    Column("created_at", Float, nullable=False),
    Column("changed_at", Float, nullable=False),
)

provisioned_members = Table(
    "provisioned_members",
    metadata,
    Column("group", String(32), ForeignKey("provisioned_groups.id", ondelete="CASCADE"), primary_key=True),
    Column("user", String(32), ForeignKey("provisioned_users.id", ondelete="CASCADE"), primary_key=True, index=True),
)

# Linux users of people who are disabled or removed: on every cluster they count as users who left.
locked_users = Table(
    "locked_users",
    metadata,
    Column("user", String(64), primary_key=True),
    Column("at", Float, nullable=False),
)

# Linux users that are to be locked or unlocked on a cluster's machines and in its Slurm, as locked_users says.
due_user_changes = Table(
    "due_user_changes",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("user", String(64), primary_key=True),
    Column("at", Float, nullable=False),
    Column("cause", String(16), nullable=False),  # lock: disabled, removed or enabled; teams: in other teams
    Column("person", String(64), nullable=False),  # who caused it
    Column("tries", Integer, nullable=False),
    Column("error", Text, nullable=False),  # of the last try
    Column("done_at", Float),  # done, and repeated until no operation runs that began before `at`
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("person", String(64), ForeignKey("people.name", ondelete="CASCADE"), nullable=False, index=True),
    Column("label", String(200), nullable=False, default=""),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("last_used_at", Float),
    Column("scopes", String(64), nullable=False, server_default="all"),  # separated by spaces
    Column("cluster", String(64), nullable=False, server_default=""),  # "" = all clusters
    Column("provider_session", String(255)),  # made in it; as in sessions
)

sessions = Table(
    "sessions",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("person", String(64), ForeignKey("people.name", ondelete="CASCADE"), nullable=False, index=True),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("last_used_at", Float, nullable=False),
    Column("how", String(16), nullable=False),  # link | token | provider
    Column("address", String(64), nullable=False),
    Column("browser", String(200), nullable=False),  # its User-Agent
    Column("authenticated_at", Float, nullable=False),  # when the person proved who they are; 0: unknown
    # The provider's session (claim sid) that the sign-in came from; "": the provider named none, NULL: another way
    Column("provider_session", String(255)),
    Column("token_id", String(32), nullable=False),  # the token that the sign-in came from; "": another way
)

signin_codes = Table(
    "signin_codes",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("person", String(64), ForeignKey("people.name", ondelete="CASCADE"), nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("authenticated_at", Float, nullable=False),  # of the session that they are made in
    Column("provider_session", String(255)),  # as in sessions
    Column("token_id", String(32), nullable=False),  # as in sessions
)

# Browsers that were sent to the sign-in provider and have not come back yet.
oidc_flows = Table(
    "oidc_flows",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("nonce", String(64), nullable=False),
    Column("verifier", String(128), nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("again", Boolean, nullable=False),  # the provider must ask the person for their password again
    Column("next_path", String(500), nullable=False),  # the page to show after it
)

# Logout tokens of the sign-in provider that were used, by a hash of their id.
used_logout_tokens = Table(
    "used_logout_tokens",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("expires_at", Float, nullable=False),
)

job_secrets = Table(
    "job_secrets",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("kind", String(8), primary_key=True),  # domain.access.job_secret.OwnerKind
    Column("owner", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("sealed", Text, nullable=False),
    Column("person", String(64), nullable=False),
    Column("at", Float, nullable=False),
)

# Replaced and removed secrets of jobs: their values stay masked in logs for a while.
former_job_secrets = Table(
    "former_job_secrets",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("cluster", String(64), nullable=False),
    Column("kind", String(8), nullable=False),
    Column("owner", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("sealed", Text, nullable=False),
    Column("person", String(64), nullable=False),
    Column("at", Float, nullable=False),  # when it was replaced or removed
    Index("ix_former_job_secrets_owner", "cluster", "owner"),
)

# Starts of jobs that got secrets and are in the audit trail: heads report them again after each outage.
job_secret_deliveries = Table(
    "job_secret_deliveries",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("at", Float, nullable=False),
)

# The number of the last change of a cluster's secrets of jobs. It stays when the last secret is removed.
job_secret_revisions = Table(
    "job_secret_revisions",
    metadata,
    Column("cluster", String(64), primary_key=True),
    Column("revision", BigInteger, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),  # 1, 2, ... without gaps
    Column("at", Float, nullable=False, index=True),
    Column("person", String(64), nullable=False),
    Column("action", String(64), nullable=False),
    Column("target", String(200), nullable=False),
    Column("detail", JSON, nullable=False),
    Column("address", String(64), nullable=False, server_default=""),
    Column("result", String(16), nullable=False, server_default="ok"),  # ok | refused | failed
    Column("hash", String(64), nullable=False),  # of this line and of the hash before it: see domain.access.audit_chain
    Index("ix_audit_person", "person"),
)
_APPEND_ONLY = {
    "sqlite": tuple(
        f"CREATE TRIGGER audit_no_{word} BEFORE {word} ON audit"
        "\nBEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END"
        for word in ("UPDATE", "DELETE")
    ),
    "postgresql": (
        "CREATE FUNCTION headway_audit_stays() RETURNS trigger LANGUAGE plpgsql AS"
        "\n$$ BEGIN RAISE EXCEPTION 'the audit trail is append-only'; END $$",
        "CREATE TRIGGER audit_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON audit"
        "\nFOR EACH STATEMENT EXECUTE FUNCTION headway_audit_stays()",
    ),
}
for dialect, statement in ((name, one) for name, statements in _APPEND_ONLY.items() for one in statements):
    event.listen(audit, "after_create", DDL(statement).execute_if(dialect=dialect))  # type: ignore[no-untyped-call]
