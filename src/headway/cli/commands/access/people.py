"""people: lists, adds and removes people and sets their roles. For admins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.output import tables
from headway.cli.output.output_formats import Format, Output, print_json
from headway.domain.access.role import Role
from headway.validation.syntax_rules import join_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headway.schemas.access.people import PersonOut

app = typer.Typer(
    help="Manage who may sign in, and their roles.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.command()
def ls(output: Output = Format.table) -> None:
    """List people, their roles and their teams."""
    people = common.connect().people.list()
    if output is Format.json:
        print_json(people)
        return
    columns = [
        tables.Column("PERSON"), tables.Column("ROLE"), tables.Column("USER"), tables.Column("SIGNS IN BY", drop_order=2),
        tables.Column("TEAMS", shrink=True, drop_order=3), tables.Column("LEADS", shrink=True, drop_order=1),
    ]  # fmt: skip
    rows = [
        [person.name, _role(person),
         person.user or "none: only looks", "provider" if person.provider else "token, link",
         _places(person.teams, person.provider_teams), _places(person.leads)]
        for person in people
    ]  # fmt: skip
    tables.print_table(columns, rows)


def _role(person: PersonOut) -> str:
    notes = [*(["from OIDC"] if person.provider_role else []), *(["disabled"] if person.disabled else [])]
    notes += [f"{cluster}: {why}" for cluster, why in person.changes_due.items()]
    return f"{person.role} ({', '.join(notes)})" if notes else person.role


def _places(teams: Mapping[str, list[str]], from_provider: Sequence[str] = ()) -> str:
    return " ".join(
        f"{cluster}/{team}{' (from OIDC)' if {team, f'{cluster}/{team}'}.intersection(from_provider) else ''}"
        for cluster, names in teams.items()
        for team in names
    )


@app.command("set")
def set_person(
    person: Annotated[str, typer.Argument(metavar="PERSON", help="Person name.")],
    role: Annotated[Role, typer.Argument(metavar="ROLE", help=f"Role: {join_words(Role)}.")],
    user: Annotated[
        str | None, typer.Option("--user", help="Linux user on clusters; '' for none (read-only access).")
    ] = None,
) -> None:
    """Set a person's role; create the person if needed."""
    from headway.schemas.access.people import PersonIn

    made = common.connect().people.put(person, PersonIn.model_validate({"role": role.value, "user": user}))
    common.print_line(
        f"{made.name} is {made.role}, {f'on clusters as {made.user}' if made.user else 'with read-only access'}"
    )
    common.print_note(f"  headway token create {person} creates a token for this person")


@app.command()
def rm(person: Annotated[str, typer.Argument(metavar="PERSON", help="Person name.")]) -> None:
    """Remove a person; their tokens and sessions end at once, their jobs and SSH sessions within a minute."""
    common.connect().people.delete(person)
    common.print_line(f"{person} is removed")


@app.command()
def disable(person: Annotated[str, typer.Argument(metavar="PERSON", help="Person name.")]) -> None:
    """Disable a person: all that they have ends as by rm, but role and teams are kept."""
    made = common.connect().people.disable(person)
    common.print_line(f"{person} is disabled")
    if made.changes_due:
        common.print_note(f"  jobs and SSH sessions end within a minute on {', '.join(made.changes_due)}")


@app.command()
def enable(person: Annotated[str, typer.Argument(metavar="PERSON", help="Person name.")]) -> None:
    """Enable a disabled person; ended tokens, sessions and jobs do not come back."""
    common.connect().people.enable(person)
    common.print_line(f"{person} is enabled")
