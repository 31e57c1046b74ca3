"""The catalogues of GPU prices that gpuhunt (https://github.com/dstackai/gpuhunt) publishes every hour: a CSV file per cloud.

The files are read here and not by the package gpuhunt: it downloads them without a time limit, and needs libraries for
clouds whose prices it does not publish."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal

from headway.domain.machines.offer import Offer, PurchaseOption
from headway.errors import Refused

PUBLISHED_AT = "https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v3"
# gpuhunt's name of a cloud -> its name in offers
CLOUDS: Mapping[str, str] = {
    "aws": "aws",
    "azure": "azure",
    "cloudrift": "cloudrift",
    "gcp": "gcp",
    "lambdalabs": "lambda",
    "nebius": "nebius",
    "oci": "oci",
    "runpod": "runpod",
    "verda": "verda",
}
_COLUMNS = ("instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "gpu_memory", "spot")
_ZONE = re.compile(r"([a-z]+-[a-z]+[0-9]+)-[a-z]")  # Google's zones; the other clouds' locations are regions
_GPU_TYPE = re.compile(r"[a-z][a-z0-9_]{0,15}")
_GPU_VENDORS = ("nvidia", "amd", "")  # "": catalogues without this column have NVIDIA's GPUs
_MIB_OF_GB = 1024
_LONGEST_TEXT = 200


def version_date(version: str) -> date:
    """Returns the day of a version such as "20260818-42". Raises Refused for another text."""
    day = version.strip().partition("-")[0]
    try:
        if not day.isdigit():  # 2026W331 is a day of ISO 8601 too
            raise ValueError(day)
        return date.fromisoformat(day)
    except ValueError:
        raise Refused(f"a catalogue of gpuhunt has no version with a date: {version[:40]!r}") from None


def parse_catalog(text: str, cloud: str, as_of: date, source: str) -> list[Offer]:
    """Returns the offers with GPUs of a catalogue, in its order, each machine of a region once: at its lowest price. A row
    that can't be read is left out. Raises Refused for a file without the known columns."""
    rows = csv.DictReader(io.StringIO(text), restval="")
    missing = [name for name in _COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise Refused(
            f"the catalogue {source} lacks the columns {', '.join(missing)}: another version of gpuhunt made it"
        )
    lowest: dict[tuple[str, str, PurchaseOption], Offer] = {}
    for row in rows:
        try:
            offer = _offer(row, cloud, as_of, source)
        except (ValueError, ArithmeticError):  # also of Decimal
            continue
        if offer is None:
            continue
        key = (offer.instance_type, offer.region, offer.purchase)
        if key not in lowest or offer.price_usd_per_node_hour < lowest[key].price_usd_per_node_hour:
            lowest[key] = offer
    return list(lowest.values())


def replace_clouds(shipped: Iterable[Offer], fetched: Iterable[Offer]) -> tuple[Offer, ...]:
    """Returns the shipped offers, with those of each cloud replaced that was fetched and is as new. Catalogues say nothing of
    interconnects: a fetched machine keeps what is shipped about it."""
    known: dict[str, list[Offer]] = {}
    for offer in shipped:
        known.setdefault(offer.cloud, []).append(offer)
    new: dict[str, list[Offer]] = {}
    for offer in fetched:
        new.setdefault(offer.cloud, []).append(offer)
    found: list[Offer] = []
    for cloud in sorted({*known, *new}):
        before, after = known.get(cloud, []), new.get(cloud, [])
        newest = max((offer.as_of for offer in before), default=date.min)
        if not after or max(offer.as_of for offer in after) < newest:
            found += before
            continue
        by_type = {offer.instance_type: offer for offer in before}
        found += [_with_links(offer, by_type.get(offer.instance_type)) for offer in after]
    return tuple(found)


def _with_links(offer: Offer, known: Offer | None) -> Offer:
    if known is None:
        return offer
    return replace(
        offer,
        gpu_product=known.gpu_product,
        gpu_link=known.gpu_link,
        network=known.network,
        network_gbit_s=known.network_gbit_s,
    )


def _offer(row: Mapping[str, str], cloud: str, as_of: date, source: str) -> Offer | None:
    """Returns the row's offer, or None for a machine without GPUs. Raises ValueError or ArithmeticError."""
    gpus, gpu = int(row["gpu_count"]), row["gpu_name"].lower()
    if not gpus or not gpu or (row.get("gpu_vendor") or "") not in _GPU_VENDORS:
        return None
    price = Decimal(row["price"])
    if not 0 < price < 100_000 or not 0 < gpus <= 1024 or not _GPU_TYPE.fullmatch(gpu):
        raise ValueError(f"no possible offer: {price} for {gpus} {gpu}")
    location = row["location"][:_LONGEST_TEXT]
    zone = _ZONE.fullmatch(location) if cloud == "gcp" else None
    return Offer(
        cloud=cloud,
        instance_type=row["instance_name"][:_LONGEST_TEXT],
        gpu_type=gpu,
        gpus=gpus,
        price_usd_per_node_hour=price,
        source=source,
        as_of=as_of,
        purchase=PurchaseOption.SPOT if row["spot"].lower() == "true" else PurchaseOption.ON_DEMAND,
        region=zone.group(1) if zone else location,
        zone=location if zone else "",
        gpu_memory_mib=_mib(row["gpu_memory"]),
        cpus=int(row["cpu"]),
        memory_mib=_mib(row["memory"]),
    )


def _mib(gigabytes: str) -> int:
    """Returns mebibytes; 0 for no figure. Raises ValueError or OverflowError."""
    return round(float(gigabytes) * _MIB_OF_GB) if gigabytes else 0
