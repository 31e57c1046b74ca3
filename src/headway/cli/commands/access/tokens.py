"""token: access tokens and sign-in links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.domain.access.role import Role
from headway.domain.access.token_lifetime import DEFAULT_TOKEN_DAYS
from headway.domain.access.token_scope import TokenScope

if TYPE_CHECKING:
    from headway.schemas.access.tokens import TokenOut

app = typer.Typer(
    help="Manage access tokens and sign-in links.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.command()
def create(
    person: Annotated[
        str, typer.Argument(metavar="PERSON", help="Person that the token is for (default: you; others: admins only).")
    ] = "",
    role: Annotated[Role | None, typer.Option("--role", help="Set the person's role (admins only).")] = None,
    name: Annotated[str, typer.Option("--name", help="Purpose of the token, as a label.")] = "",
    days: Annotated[
        int | None, typer.Option("--days", min=1, help=f"Days until it expires (default: {DEFAULT_TOKEN_DAYS}).")
    ] = None,
    no_expiry: Annotated[bool, typer.Option("--no-expiry", help="Create a token that never expires.")] = False,
    scope: Annotated[
        list[TokenScope] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="What the token permits: all (default), read, plan, submit, operate, admin or scim. Repeat it for several.",
        ),
    ] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Restrict the token to this cluster.")] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only the token.")] = False,
    output: Output = Format.table,
) -> None:
    """Create a token. It is shown only once."""
    from headway.schemas.access.tokens import TokenIn

    if no_expiry and days is not None:
        raise typer.BadParameter("--days and --no-expiry exclude each other")
    fields = {
        "person": person,
        "role": role and role.value,
        "label": name,
        "days": None if no_expiry else days or DEFAULT_TOKEN_DAYS,
        "scopes": list(scope or [TokenScope.ALL]),
        "cluster": "" if cluster is None else common.require_cluster_name(cluster),
    }
    made = common.connect().tokens.create(TokenIn.model_validate(fields))
    if quiet:
        common.print_line(made.token or "")
        return
    if output is Format.json:
        print_json(made)
        return
    common.print_line(made.token or "")
    until = f" until {formatting.local_time(made.expires_at)}" if made.expires_at else ""
    common.print_note(f"token {made.id} of {made.person} ({made.role}){until}; it is not shown again")


@app.command()
def ls(output: Output = Format.table) -> None:
    """List tokens; their secrets are never shown."""
    tokens = common.connect().tokens.list()
    if output is Format.json:
        print_json(tokens)
        return
    columns = [
        tables.Column("ID"), tables.Column("PERSON"), tables.Column("ROLE"), tables.Column("FOR", drop_order=5),
        tables.Column("NAME", shrink=True, drop_order=3), tables.Column("CREATED", drop_order=2),
        tables.Column("EXPIRES", drop_order=1), tables.Column("LAST USED", drop_order=4),
    ]  # fmt: skip
    rows = [
        [t.id, t.person, t.role, _for(t), t.label, formatting.local_time(t.created_at),
         formatting.local_time(t.expires_at) or "never", formatting.local_time(t.last_used_at) or "never"]
        for t in tokens
    ]  # fmt: skip
    tables.print_table(columns, rows)


def _for(token: TokenOut) -> str:
    return " ".join(token.scopes) + (f" on {token.cluster}" if token.cluster else "")


@app.command()
def revoke(token: Annotated[str, typer.Argument(metavar="ID", help="Token id, from headway token ls.")]) -> None:
    """Revoke a token; it stops working at once."""
    common.connect().tokens.revoke(token)
    common.print_line(f"revoked {token}")


@app.command()
def link(output: Output = Format.table) -> None:
    """Print a link that signs a browser in as you, once."""
    made = common.connect().tokens.sign_in_link()
    if output is Format.json:
        print_json(made)
        return
    common.print_line(made.url)
    common.print_note(f"works once, until {formatting.local_time(made.expires_at)}")
