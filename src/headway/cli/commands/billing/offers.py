"""offers: prices of GPU machines of clouds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.output import formatting, tables
from headway.cli.output.output_formats import ReportFormat, ReportOutput, print_for_programs, print_rows
from headway.domain.machines.offer import PurchaseOption
from headway.errors import HeadwayError

if TYPE_CHECKING:
    from headway.schemas.billing.offers import OfferOut, OffersOut, RefreshedOffersOut

_MIB_OF_GIB = 1024


def offers(
    gpu: Annotated[str, typer.Option("--gpu", help="Only this GPU type, for example h100.")] = "",
    count: Annotated[
        int, typer.Option("--count", min=0, help="Number of GPUs to price, in whole machines (default: one machine).")
    ] = 0,
    gpus_per_node: Annotated[
        int, typer.Option("--gpus-per-node", min=0, help="Only machines with at least this many GPUs.")
    ] = 0,
    cloud: Annotated[str, typer.Option("--cloud", help="Only this cloud.")] = "",
    region: Annotated[str, typer.Option("--region", help="Only this region.")] = "",
    purchase: Annotated[
        PurchaseOption | None, typer.Option("--purchase", help="Only on-demand, spot or reserved machines.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Compare the groups of this cluster too, at the prices of its file.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Number of offers to list.")] = 30,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="First let the server fetch newer prices (admins only).")
    ] = False,
    output: ReportOutput = ReportFormat.table,
) -> None:
    """Compare prices of GPU machines of clouds, the lowest first; each has its source and its day.

    headway offers --gpu h100 --count 16 --gpus-per-node 8
    headway offers --gpu h200 --purchase spot -o csv"""
    api = common.connect()
    failed = None
    if refresh:
        try:
            _print_refresh(api.billing.refresh_offers())
        except HeadwayError as error:
            failed = error  # the prices that the server has are still worth showing
    found = api.billing.offers(
        gpu=gpu,
        count=count,
        cloud=cloud,
        region=region,
        purchase=purchase.value if purchase else "",
        gpus_per_node=gpus_per_node,
        cluster=cluster or "",
        limit=limit,
    )
    if not print_for_programs(found, output):
        _print_table(found)
    if failed is not None:
        raise failed


def _print_table(found: OffersOut) -> None:
    if not found.offers:
        common.print_note("no offer matches; leave out an option, or see all with headway offers")
        return
    columns = [
        tables.Column("CLOUD"),
        tables.Column("TYPE", shrink=True),
        tables.Column("REGION", drop_order=3),
        tables.Column("PURCHASE"),
        tables.Column("GPUS"),
        tables.Column("GPU GIB", right=True, drop_order=2),
        tables.Column("VCPUS", right=True, drop_order=5),
        tables.Column("GIB", right=True, drop_order=6),
        tables.Column("NETWORK", drop_order=4),
        tables.Column("MACHINES", right=True),
        tables.Column("USD/GPU-H", right=True),
        tables.Column("USD/H", right=True),
        tables.Column("PRICE OF", drop_order=1),
    ]
    print_rows(columns, [_row(offer) for offer in found.offers])
    ages = {offer.as_of: offer.age for offer in found.offers}
    if found.oldest and found.newest:
        days = f"{found.newest} ({ages[found.newest]})"
        if found.oldest != found.newest:
            days = f"{found.oldest} ({ages[found.oldest]}) to {days}"
        common.print_note(f"prices of {days}, without tax, disks, addresses and traffic; sources: -o json")
    if found.left_off:
        common.print_note(f"{formatting.plural(found.left_off, 'more offer')}; list them with --limit")
    for offer in found.offers:
        if offer.note:
            common.print_note(f"{offer.cloud} {offer.instance_type} ({offer.purchase}): {offer.note}")


def _row(offer: OfferOut) -> list[tables.Cell]:
    network = " ".join(
        word
        for word in (
            offer.gpu_link,
            offer.network,
            f"{offer.network_gbit_s} Gbit/s" if offer.network_gbit_s else "",
        )
        if word
    )
    return [
        offer.cloud,
        offer.instance_type,
        offer.region,
        offer.purchase.value,
        f"{offer.gpus} {offer.gpu_product or offer.gpu_type}",
        _gib(offer.gpu_memory_mib),
        str(offer.cpus or ""),
        _gib(offer.memory_mib),
        network,
        str(offer.machines),
        f"{offer.usd_per_gpu_hour:,.2f}",
        f"{offer.usd_per_hour:,.2f}",
        str(offer.as_of),
    ]


def _gib(mib: int) -> str:
    return f"{round(mib / _MIB_OF_GIB):,}" if mib else ""


def _print_refresh(done: RefreshedOffersOut) -> None:
    for cloud in done.clouds:
        if cloud.error:
            common.print_note(f"{cloud.cloud}: prices kept as they were, because {cloud.error}")
        else:
            common.print_note(f"{cloud.cloud}: {formatting.plural(cloud.offers, 'offer')} of {cloud.as_of}")
