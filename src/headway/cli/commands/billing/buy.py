"""buy: which GPUs to own, reserve or rent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterName
from headway.cli.output import tables
from headway.cli.output.output_formats import Format, Output, print_json

if TYPE_CHECKING:
    from headway.schemas.billing.purchase import PurchaseOut


def buy(
    cluster: ClusterName = None,
    gpu: Annotated[str, typer.Option("--gpu", help="GPU type (default: the one with most GPU-hours).")] = "",
    days: Annotated[int, typer.Option("--days", min=1, max=400, help="Days of usage, until now.")] = 92,
    on_demand: Annotated[
        float, typer.Option("--on-demand", min=0, help="USD per GPU-hour (default: the lowest known).")
    ] = 0,
    reserved: Annotated[
        float, typer.Option("--reserved", min=0, help="USD per GPU-hour (default: the lowest known).")
    ] = 0,
    spot: Annotated[float, typer.Option("--spot", min=0, help="USD per GPU-hour (default: the lowest known).")] = 0,
    spot_share: Annotated[
        float, typer.Option("--spot-share", min=0, max=1, help="Part of the GPU-hours that may run on spot machines.")
    ] = 0,
    spot_loss: Annotated[
        float, typer.Option("--spot-loss", min=0, help="Work that interruptions repeat, by the work done.")
    ] = 0.1,
    capex: Annotated[
        float, typer.Option("--capex", min=0, help="USD of an own GPU with its share of server and network.")
    ] = 0,
    years: Annotated[float, typer.Option("--years", min=0.5, max=20, help="Years until an own GPU is sold.")] = 4,
    resale: Annotated[
        float, typer.Option("--resale", min=0, max=1, help="Part of the price that the sale brings.")
    ] = 0.2,
    usd_per_kwh: Annotated[float, typer.Option("--usd-per-kwh", min=0, help="Price of energy.")] = 0.12,
    pue: Annotated[float, typer.Option("--pue", min=1, help="Power of the site, with cooling, by its machines.")] = 1.3,
    running: Annotated[
        float, typer.Option("--running", min=0, help="Rent, people and repairs of a year, by the price of the GPU.")
    ] = 0.08,
    output: Output = Format.table,
) -> None:
    """Find which GPUs to own, reserve or rent, from the cluster's real usage.

    Each GPU is bought in the way that is cheapest for the hours in which it was needed. Prices that are not given are the lowest
    that headway offers knows.

    headway buy lab
    headway buy lab --capex 31000 --usd-per-kwh 0.2 --spot-share 0.3"""
    from headway.schemas.billing.purchase import PurchaseIn

    api = common.connect()
    name = common.choose_cluster(api, cluster)
    found = api.billing.purchase(
        name,
        PurchaseIn(
            gpu=gpu, days=days, on_demand=on_demand, reserved=reserved, spot=spot, spot_share=spot_share, spot_loss=spot_loss,
            capex=capex, years=years, resale=resale, usd_per_kwh=usd_per_kwh, pue=pue, running=running,
        ),
    )  # fmt: skip
    if output is Format.json:
        print_json(found)
        return
    _print_purchase(found)


def _print_purchase(found: PurchaseOut) -> None:
    parts = {part.name: part for part in found.mix}
    columns = [
        tables.Column(found.gpu.upper()), tables.Column("USD/HOUR", right=True), tables.Column("USD/USED HOUR", right=True),
        tables.Column("BREAK-EVEN", right=True), tables.Column("GPUS", right=True), tables.Column("GPU-HOURS", right=True),
        tables.Column("USD", right=True), tables.Column("PRICE OF", shrink=True),
    ]  # fmt: skip
    rows: list[list[tables.Cell]] = []
    for way in found.ways:
        part = parts[way.name]
        even = (
            ""
            if way.name in ("on-demand", "spot")
            else "never"
            if way.break_even_h is None
            else f"{way.break_even_h:,.0f} h/month"
        )
        rows.append([
            way.name, f"{way.fixed_usd_h:,.2f}", f"{way.used_usd_h:,.2f}", even, str(part.gpus), f"{part.gpu_hours:,.0f}",
            f"{part.usd:,.0f}", way.origin,
        ])  # fmt: skip
    tables.print_table(columns, rows)
    common.print_line()
    saved = found.all_on_demand_usd - found.usd
    used = found.usage_gpu_hours / found.present_gpu_hours if found.present_gpu_hours else 0
    facts: list[tuple[str, tables.Cell]] = [
        ("usage", f"{found.usage_gpu_hours:,.0f} GPU-hours in {found.hours / 24:,.1f} days, at most {found.peak_gpus:,.0f} GPUs; "
                  f"{used:.0%} of the machines' GPU-hours"),
        ("cheapest mix", f"{found.usd:,.0f} USD; all on demand: {found.all_on_demand_usd:,.0f} USD ({saved:,.0f} USD more)"),
    ]  # fmt: skip
    tables.print_facts(facts)
    common.print_line()
    heads = [tables.Column("IF 20 % LOWER OR HIGHER"), tables.Column("USD", right=True),
             tables.Column("OWNED AND RESERVED GPUS", right=True)]  # fmt: skip
    tables.print_table(heads, [
        [one.name, f"{one.low_usd:,.0f} to {one.high_usd:,.0f}", f"{one.low_fixed_gpus}, {one.high_fixed_gpus}"]
        for one in found.sensitivity
    ])  # fmt: skip
    for line in found.assumptions:
        common.print_note(f"assumption: {line}")
