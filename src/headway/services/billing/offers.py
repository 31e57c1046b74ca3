"""Prices of clouds: those that ship with Headway, and newer ones that an admin had fetched."""

from __future__ import annotations

import asyncio
import io
import zipfile
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path

import structlog
from pydantic import TypeAdapter, ValidationError

from headway.billing.prices.offer_comparison import OfferFilter, age_text, compare, sort_quotes
from headway.catalog.gpuhunt_catalog import CLOUDS, parse_catalog, replace_clouds, version_date
from headway.catalog.offers import shipped_offers
from headway.domain.machines.offer import Offer, PurchaseOption, Quote
from headway.errors import HeadwayError, NotFound, Refused, Unreachable
from headway.private_files import write_private
from headway.schemas.billing.offers import CloudRefreshOut, OfferOut, OffersOut, RefreshedOffersOut
from headway.services.access.audit import write_audit_line
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.transport.download import download

FILE = "offers.json"  # in the folder that all servers of a database share
_TIMEOUT_S = 30.0  # of one download
_MOST_BYTES = 32 * 1024 * 1024
_MOST_CSV_BYTES = 128 * 1024 * 1024
_AT_ONCE = 2  # catalogues that are in memory at the same time
log = structlog.get_logger("headway.services.offers")


@dataclass(frozen=True, slots=True)
class FetchedOffers:
    """The content of the file: prices that were fetched, and when (unix seconds)."""

    fetched_at: int
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class OfferNames:
    """The GPU types and clouds of all offers, sorted."""

    gpu_types: tuple[str, ...]
    clouds: tuple[str, ...]


_FILE_FORM = TypeAdapter(FetchedOffers)


async def compare_offers(
    state: AppState, who: Principal, only: OfferFilter, gpus: int, limit: int, *, cluster: str = ""
) -> OffersOut:
    """Returns the first `limit` offers by price. `gpus` 0: the price of one machine each. `cluster`: its groups are compared
    too, at the prices of its file, whatever cloud and region are asked for. Raises NotFound for a cluster that does not
    exist or that the person may not see."""
    offers, fetched_at = await asyncio.to_thread(_load, state.settings.data / FILE)
    today = datetime.fromtimestamp(state.clock(), UTC).date()
    found = compare(offers, only, gpus)
    if cluster:
        own = await _groups_of(state, who, cluster, today)
        found = sort_quotes([*found, *compare(own, replace(only, cloud="", region=""), gpus)], gpus)
    shown = found[:limit]
    days = [one.offer.as_of for one in shown]
    return OffersOut(
        gpus=gpus,
        offers=[_offer_out(one, today) for one in shown],
        left_off=len(found) - len(shown),
        oldest=min(days, default=None),
        newest=max(days, default=None),
        refreshed_at=fetched_at,
    )


async def _groups_of(state: AppState, who: Principal, name: str, today: date) -> list[Offer]:
    """Returns the groups of a cluster that have GPUs and a price, as offers."""
    if not who.may_see_cluster(name):
        raise NotFound(f"no cluster {name!r}", hint="headway ls")
    _, cluster = await state.clusters.get(name)
    simulated = ", SIMULATED GPUs" if cluster.simulated_gpus else ""
    return [
        Offer(
            cloud=name,
            instance_type=group.plan.name,
            gpu_type=group.plan.gpu_type,
            gpus=group.plan.gpus,
            price_usd_per_node_hour=group.price_usd_per_node_hour,
            source="",
            as_of=today,
            purchase=(
                PurchaseOption.SPOT
                if group.spot
                else PurchaseOption.RESERVED
                if group.reserved
                else PurchaseOption.ON_DEMAND
            ),
            gpu_memory_mib=group.plan.gpu_memory_mib,
            cpus=group.plan.cpus,
            memory_mib=group.plan.memory_mib,
            note=f"group {group.name} of this cluster, at the price in its file{simulated}",
        )
        for group in cluster.groups
        if group.plan.gpus and group.price_usd_per_node_hour
    ]


async def offer_names(state: AppState) -> OfferNames:
    """Returns what the offers with GPUs can be narrowed to."""
    offers, _ = await asyncio.to_thread(_load, state.settings.data / FILE)
    return OfferNames(
        tuple(sorted({offer.gpu_type for offer in offers if offer.gpus})),
        tuple(sorted({offer.cloud for offer in offers if offer.gpus})),
    )


async def cheapest_offers(state: AppState, gpu_type: str, gpus_per_node: int) -> dict[PurchaseOption, Offer]:
    """Returns the offer with the lowest price of a GPU of this type, by the way to buy it: of machines with `gpus_per_node` GPUs
    or more where there are some. A way without an offer is missing."""
    offers, _ = await asyncio.to_thread(_load, state.settings.data / FILE)
    found: dict[PurchaseOption, Offer] = {}
    for option in PurchaseOption:
        every = [offer for offer in offers if (offer.gpu_type, offer.purchase) == (gpu_type, option) and offer.gpus]
        large = [offer for offer in every if offer.gpus >= gpus_per_node]
        if every:
            found[option] = min(large or every, key=lambda offer: offer.price_usd_per_gpu_hour)
    return found


async def refresh_offers(state: AppState, who: Principal) -> RefreshedOffersOut:
    """Fetches the prices that gpuhunt publishes and keeps them for all servers. Clouds that could not be fetched keep the
    prices that they have. Raises Unreachable if none could be fetched."""
    base = state.settings.offers_url
    turns = asyncio.Semaphore(_AT_ONCE)
    results = await asyncio.gather(*(_fetch(base, name, turns) for name in CLOUDS))
    found = RefreshedOffersOut(source=base, clouds=[row for row, _ in results])
    new = tuple(offer for _, offers in results for offer in offers)
    if not new:
        raise Unreachable(
            f"no prices could be fetched: {found.clouds[0].error}; the prices of before are kept and shown",
            hint="let the server reach this address, or set HEADWAY_OFFERS_URL to a copy of it",
        )
    await asyncio.to_thread(_keep, state.settings.data / FILE, new, int(state.clock()))
    fetched = [row.cloud for row in found.clouds if not row.error]
    await write_audit_line(state, who, "offers.refresh", "offers", clouds=",".join(fetched))
    return found


async def _fetch(base: str, name: str, turns: asyncio.Semaphore) -> tuple[CloudRefreshOut, list[Offer]]:
    async with turns:
        return await _fetch_now(base, name)


async def _fetch_now(base: str, name: str) -> tuple[CloudRefreshOut, list[Offer]]:
    cloud = CLOUDS[name]
    try:
        version = (await download(f"{base}/{name}/version", timeout_s=_TIMEOUT_S, most_bytes=1000)).decode(
            "ascii", "replace"
        )
        as_of, source = version_date(version), f"{base}/{name}/{version.strip()}/catalog.zip"
        packed = await download(source, timeout_s=_TIMEOUT_S, most_bytes=_MOST_BYTES)
        offers = await asyncio.to_thread(_unpack, packed, name, as_of, source)
    except HeadwayError as error:
        return CloudRefreshOut(cloud=cloud, error=error.first_line), []
    return CloudRefreshOut(cloud=cloud, offers=len(offers), as_of=as_of), offers


def _unpack(packed: bytes, name: str, as_of: date, source: str) -> list[Offer]:
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive, archive.open(f"{name}.csv") as file:
            content = file.read(_MOST_CSV_BYTES + 1)
    except (zipfile.BadZipFile, KeyError, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise Refused(f"{source} is not a zip file with {name}.csv: {error}") from None
    if len(content) > _MOST_CSV_BYTES:
        raise Refused(f"{source} unpacks to more than {_MOST_CSV_BYTES:,} bytes")
    return parse_catalog(content.decode("utf-8", "replace"), CLOUDS[name], as_of, source)


def _keep(file: Path, new: tuple[Offer, ...], now: int) -> None:
    """Replaces the prices of the clouds in `new`; those that were fetched before of other clouds stay."""
    before, _ = _read_if_any(file)
    kept = FetchedOffers(now, replace_clouds(before, new))
    write_private(file, _FILE_FORM.dump_json(kept))


def _load(file: Path) -> tuple[tuple[Offer, ...], int]:
    """Returns the offers, and when they were last fetched (0: never)."""
    state = _state_of(file)
    return _merged(file, *state) if state else (shipped_offers(), 0)


@lru_cache(maxsize=1)
def _merged(file: Path, changed_at: int, inode: int) -> tuple[tuple[Offer, ...], int]:
    fetched, fetched_at = _read(file, changed_at, inode)
    return replace_clouds(shipped_offers(), fetched), fetched_at


def _read_if_any(file: Path) -> tuple[tuple[Offer, ...], int]:
    state = _state_of(file)
    return _read(file, *state) if state else ((), 0)


def _state_of(file: Path) -> tuple[int, int] | None:
    """Returns what changes with the file's content; None without a file."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino


@lru_cache(maxsize=1)
def _read(file: Path, _changed_at: int, _inode: int) -> tuple[tuple[Offer, ...], int]:
    """Returns the file's content, read once for each state of the file. A file that can't be read counts as none."""
    try:
        found = _FILE_FORM.validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        log.warning("the fetched prices of clouds can't be read", file=str(file), error=str(error).splitlines()[0])
        return (), 0
    return found.offers, found.fetched_at


def _offer_out(found: Quote, today: date) -> OfferOut:
    offer = found.offer
    return OfferOut(
        cloud=offer.cloud,
        instance_type=offer.instance_type,
        region=offer.region,
        zone=offer.zone,
        purchase=offer.purchase,
        gpu_type=offer.gpu_type,
        gpu_product=offer.gpu_product,
        gpus=offer.gpus,
        gpu_memory_mib=offer.gpu_memory_mib,
        cpus=offer.cpus,
        memory_mib=offer.memory_mib,
        gpu_link=offer.gpu_link,
        network=offer.network,
        network_gbit_s=offer.network_gbit_s,
        machines=found.machines,
        total_gpus=found.gpus,
        usd_per_machine_hour=offer.price_usd_per_node_hour,
        usd_per_gpu_hour=round(offer.price_usd_per_gpu_hour, 4),
        usd_per_hour=found.price_usd_per_hour,
        as_of=offer.as_of,
        age=age_text(offer.as_of, today),
        source=offer.source,
        note=offer.note,
    )
