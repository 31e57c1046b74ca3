"""Catalogues of prices as gpuhunt publishes them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from headway.catalog.gpuhunt_catalog import parse_catalog, replace_clouds, version_date
from headway.catalog.offers import shipped_offers
from headway.domain.machines.offer import PurchaseOption
from headway.errors import Refused
from tests.support.billing.published_catalogs import catalog

DAY = date(2026, 11, 20)
P5 = "p5.48xlarge,us-east-1,50.5,192,2048.0,8,H100,80.0,False,,nvidia,,x86,{}"


def test_a_row_becomes_an_offer() -> None:
    (found,) = parse_catalog(catalog(P5), "aws", DAY, "https://example.org/aws")
    assert (found.instance_type, found.region, found.gpu_type, found.gpus) == ("p5.48xlarge", "us-east-1", "h100", 8)
    assert (found.price_usd_per_node_hour, found.purchase) == (Decimal("50.5"), PurchaseOption.ON_DEMAND)
    assert (found.gpu_memory_mib, found.cpus, found.memory_mib, found.as_of) == (81920, 192, 2097152, DAY)


def test_a_machine_of_several_zones_is_listed_once_at_its_lowest_price() -> None:
    rows = [f"a3-highgpu-8g,us-central1-{zone},{usd},208,1872.0,8,H100,80.0,True,,nvidia,,x86,{{}}" for zone, usd in
            (("a", 30), ("b", 28), ("c", 29))]  # fmt: skip
    (found,) = parse_catalog(catalog(*rows), "gcp", DAY, "")
    assert (found.region, found.zone, found.price_usd_per_node_hour) == ("us-central1", "us-central1-b", Decimal(28))


@pytest.mark.parametrize(
    "row",
    [
        "m5.large,us-east-1,0.1,2,8.0,0,,,False,,,,x86,{}",  # no GPUs
        "v5,us-central1-a,9,8,8.0,8,v5e,16.0,False,,google,,x86,{}",  # no GPU
        "x,us,free,8,8.0,8,H100,80.0,False,,nvidia,,x86,{}",
        "x,us,NaN,8,8.0,8,H100,80.0,False,,nvidia,,x86,{}",
        "x,us,0,8,8.0,8,H100,80.0,False,,nvidia,,x86,{}",
        "x,us,5,8,inf,8,H100,80.0,False,,nvidia,,x86,{}",
        "x,us,5,8,8.0,8,<b>,80.0,False,,nvidia,,x86,{}",
        "x,us,5",
    ],
)
def test_a_row_that_is_no_gpu_offer_is_left_out(row: str) -> None:
    assert [offer.instance_type for offer in parse_catalog(catalog(row, P5), "aws", DAY, "")] == ["p5.48xlarge"]


def test_another_format_is_refused() -> None:
    with pytest.raises(Refused, match="lacks the columns location, price"):
        parse_catalog("instance_name,zone,usd\n", "aws", DAY, "https://example.org")


@pytest.mark.parametrize("version", ["", "latest", "<html>", "20261399-1", "2026W331-1"])
def test_a_version_without_a_date_is_refused(version: str) -> None:
    with pytest.raises(Refused, match="no version with a date"):
        version_date(version)


def test_fetched_clouds_replace_shipped_ones_and_keep_their_interconnect() -> None:
    shipped = shipped_offers()
    fetched = parse_catalog(catalog(P5), "aws", DAY, "https://example.org/aws")
    found = replace_clouds(shipped, fetched)
    (p5,) = [offer for offer in found if offer.cloud == "aws"]
    assert (p5.as_of, p5.gpu_link, p5.network, p5.network_gbit_s) == (DAY, "nvlink", "efa", 3200)
    assert [o for o in found if o.cloud != "aws"] == sorted(
        (o for o in shipped if o.cloud != "aws"), key=lambda offer: offer.cloud
    )


def test_older_fetched_prices_do_not_replace_newer_shipped_ones() -> None:
    shipped = shipped_offers()
    old = [replace(offer, as_of=date(2025, 1, 1)) for offer in parse_catalog(catalog(P5), "aws", DAY, "")]
    assert set(replace_clouds(shipped, old)) == set(shipped)
