"""cloud: what the server rents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import Format, Output, print_json

if TYPE_CHECKING:
    from headway.schemas.nodes.rentals import RentalSpendOut, RentedThingOut, SeenPriceOut

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Show what the server rents from clouds."
)


@app.callback()
def _group() -> None: ...


@app.command("ls")
def ls(
    prices: Annotated[
        bool, typer.Option("--prices", help="List the prices that the clouds asked in the last 30 days instead.")
    ] = False,
    output: Output = Format.table,
) -> None:
    """List everything that costs money at clouds: instances, volumes and addresses of all clusters, since when, and how
    much. Also say what the instances of each cluster have cost this month, those that have ended included. Exits with 1
    if a region does not answer."""
    rented = common.connect().nodes.rented()
    if output is Format.json:
        print_json(rented)
    elif prices:
        _print_prices(rented.prices)
    elif not rented.things:
        common.print_line("nothing is rented")
    else:
        columns = [
            tables.Column("CLUSTER"), tables.Column("MACHINE"), tables.Column("WHAT"), tables.Column("ZONE", drop_order=3),
            tables.Column("STATE", drop_order=2), tables.Column("SINCE", drop_order=1), tables.Column("USD/H", right=True),
            tables.Column("USD", right=True), tables.Column("ID", drop_order=4),
        ]  # fmt: skip
        tables.print_table(columns, [_row(thing) for thing in rented.things])
        common.print_line(f"{rented.usd_per_hour:.2f} USD an hour, not counting things whose price is not known")
    if output is not Format.json and not prices:
        for spend in rented.spent:
            unknown = (
                f", without {spend.unpriced_s / 3600:.1f} hours whose price is not known" if spend.unpriced_s else ""
            )
            since = formatting.local_time(rented.since)
            common.print_line(
                f"{spend.cluster}: {spend.usd:.2f} USD for instances since {since}{unknown}{_taken_back(spend)}"
            )
    for line in rented.silent:
        common.print_note(f"not known: {line}")
    if rented.silent:
        raise typer.Exit(1)


def _taken_back(spend: RentalSpendOut) -> str:
    return f"; the cloud took {formatting.plural(spend.taken_back, 'spot machine')} back" if spend.taken_back else ""


def _print_prices(prices: Sequence[SeenPriceOut]) -> None:
    if not prices:
        common.print_line(
            "no prices were seen; the server looks every 10 minutes while a cluster with rented machines is up"
        )
        return
    columns = [
        tables.Column("CLOUD"), tables.Column("TYPE", shrink=True), tables.Column("ZONE"), tables.Column("PURCHASE"),
        tables.Column("USD/H", right=True), tables.Column("LOWEST", right=True), tables.Column("HIGHEST", right=True),
        tables.Column("SINCE", drop_order=2), tables.Column("SEEN", drop_order=1), tables.Column("RENTED", right=True),
        tables.Column("TAKEN BACK", right=True),
    ]  # fmt: skip
    tables.print_table(columns, [_price_row(one) for one in prices])


def _price_row(one: SeenPriceOut) -> list[tables.Cell]:
    usd = (f"{price:.4f}" for price in (one.usd_per_hour, one.lowest, one.highest))
    times = (formatting.local_time(at) for at in (one.since, one.seen_at))
    return [
        one.cloud, one.instance_type, one.zone, one.purchase.value, *usd, *times, str(one.rented), str(one.taken_back),
    ]  # fmt: skip


def _row(thing: RentedThingOut) -> list[tables.Cell]:
    return [
        (thing.cluster, "bold"),
        thing.machine or "-",
        f"{thing.kind} {thing.description}",
        thing.zone or "-",
        thing.state,
        formatting.local_time(thing.since) if thing.since else "-",
        "-" if thing.usd_per_hour is None else f"{thing.usd_per_hour:.2f}",
        "-" if thing.usd is None else f"{thing.usd:.2f}",
        thing.id,
    ]
