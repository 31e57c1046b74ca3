"""Prices of AWS: the price list for on-demand machines, the newest price of each zone for spot machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from headway.catalog.offers import shipped_offers
from headway.domain.machines.offer import Offer, PurchaseOption
from headway.errors import HeadwayError
from headway.providers.cloud.aws.clients import AwsClients

CLOUD = "aws"
PRICE_LIST = "https://aws.amazon.com/ec2/pricing/on-demand/"
SPOT_PRICES = "https://aws.amazon.com/ec2/spot/pricing/"
_SPOT_HISTORY = timedelta(hours=6)
_ON_DEMAND = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


async def on_demand_price(aws: AwsClients, instance_type: str) -> tuple[Decimal, date] | None:
    """Returns the price in USD an hour and the day from which it holds; None if the price list does not answer or does
    not have the type. (The rights to read the price list are not needed to rent.)"""
    wanted = {**_ON_DEMAND, "instanceType": instance_type, "regionCode": aws.region}
    terms = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()]
    try:
        answer = await aws.call("get_products", "pricing", ServiceCode="AmazonEC2", Filters=terms)
    except HeadwayError:
        return None
    found = [price for text in answer.get("PriceList", []) for price in _prices(json.loads(text))]
    return min(found) if found else None


def _prices(product: Mapping[str, Any]) -> list[tuple[Decimal, date]]:
    found = []
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        day = datetime.fromisoformat(str(term["effectiveDate"]).replace("Z", "+00:00")).date()
        for dimension in term["priceDimensions"].values():
            try:
                usd = Decimal(dimension["pricePerUnit"]["USD"])
            except (KeyError, InvalidOperation):
                continue
            if usd > 0 and dimension.get("unit") == "Hrs":
                found.append((usd, day))
    return found


def shipped_price(instance_type: str, region: str) -> Offer | None:
    """Returns the package's own offer of a type on demand, for the region or else for another one, which its note then
    names; None if the package has none."""
    same = [
        offer
        for offer in shipped_offers()
        if (offer.cloud, offer.instance_type) == (CLOUD, instance_type) and offer.purchase is PurchaseOption.ON_DEMAND
    ]
    here = [offer for offer in same if offer.region == region]
    newest = max(here or same, key=lambda offer: offer.as_of, default=None)
    return newest if newest is None or here else replace(newest, note=f"of {newest.region or 'another region'}")


async def spot_prices(
    aws: AwsClients, types: Sequence[str], now: datetime | None = None
) -> dict[tuple[str, str], Decimal]:
    """Returns (type, zone) -> newest price in USD an hour. {} if AWS does not tell."""
    since = (now or datetime.now(UTC)) - _SPOT_HISTORY
    linux = ["Linux/UNIX"]
    try:
        rows = await aws.pages(
            "describe_spot_price_history", "SpotPriceHistory", InstanceTypes=list(types), ProductDescriptions=linux,
            StartTime=since,
        )  # fmt: skip
    except HeadwayError:
        return {}
    newest: dict[tuple[str, str], tuple[datetime, Decimal]] = {}
    for row in rows:
        key, price = (row["InstanceType"], row["AvailabilityZone"]), (row["Timestamp"], Decimal(row["SpotPrice"]))
        newest[key] = max(newest.get(key, price), price)
    return {key: price for key, (_, price) in newest.items()}
