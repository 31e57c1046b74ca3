"""Tokens cut down to scopes and a cluster, people from a sign-in provider, and an audit trail that nobody can change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SQLITE = """
CREATE TRIGGER audit_no_{word} BEFORE {word} ON audit
BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END
"""
POSTGRES = """
CREATE FUNCTION headway_audit_stays() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the audit trail is append-only'; END $$
"""
POSTGRES_TRIGGER = """
CREATE TRIGGER audit_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
FOR EACH STATEMENT EXECUTE FUNCTION headway_audit_stays()
"""


def upgrade() -> None:
    op.add_column("people", sa.Column("user", sa.String(64)))
    op.add_column("people", sa.Column("subject", sa.String(500)))
    op.create_index("uq_people_subject", "people", ["subject"], unique=True)
    op.add_column("tokens", sa.Column("scopes", sa.String(64), nullable=False, server_default="all"))
    op.add_column("tokens", sa.Column("cluster", sa.String(64), nullable=False, server_default=""))
    op.add_column("audit", sa.Column("address", sa.String(64), nullable=False, server_default=""))
    op.add_column("audit", sa.Column("result", sa.String(16), nullable=False, server_default="ok"))
    op.create_index("ix_audit_person", "audit", ["person"])
    op.create_table(
        "oidc_flows",
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("nonce", sa.String(64), nullable=False),
        sa.Column("verifier", sa.String(128), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_oidc_flows"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(POSTGRES)
        op.execute(POSTGRES_TRIGGER)
        return
    for word in ("UPDATE", "DELETE"):
        op.execute(SQLITE.format(word=word))
