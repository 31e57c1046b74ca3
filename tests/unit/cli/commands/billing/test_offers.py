"""headway offers prints a table and the age of the prices, and shows it too when a refresh fails."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from headway.cli.commands.billing.offers import offers
from headway.cli.output.output_formats import ReportFormat
from headway.domain.machines.offer import PurchaseOption
from headway.errors import Unreachable
from headway.schemas.billing.offers import CloudRefreshOut, OfferOut, OffersOut, RefreshedOffersOut

P5 = OfferOut(
    cloud="aws", instance_type="p5.48xlarge", region="us-east-1", zone="", purchase=PurchaseOption.ON_DEMAND,
    gpu_type="h100", gpu_product="H100 SXM", gpus=8, gpu_memory_mib=81920, cpus=192, memory_mib=2097152,
    gpu_link="nvlink", network="efa", network_gbit_s=3200, machines=2, total_gpus=16,
    usd_per_machine_hour=Decimal("55.04"), usd_per_gpu_hour=Decimal("6.88"), usd_per_hour=Decimal("110.08"),
    as_of=date(2025, 6, 5), age="18 months old", source="https://example.org/prices", note="list price",
)  # fmt: skip


class Prices:
    """A server with one offer."""

    def __init__(self, found: OffersOut | None = None, *, reachable: bool = True) -> None:
        self.found = found or OffersOut(gpus=16, offers=[P5], left_off=3, oldest=P5.as_of, newest=P5.as_of)
        self.reachable = reachable
        self.asked: dict[str, Any] = {}

    @property
    def billing(self) -> Prices:
        return self

    def offers(self, **asked: Any) -> OffersOut:
        self.asked = asked
        return self.found

    def refresh_offers(self) -> RefreshedOffersOut:
        if not self.reachable:
            raise Unreachable("no prices could be fetched: https://example.org can't be read")
        rows = [
            CloudRefreshOut(cloud="aws", offers=2, as_of=date(2026, 11, 20)),
            CloudRefreshOut(cloud="gcp", error="answers 404"),
        ]
        return RefreshedOffersOut(source="https://example.org", clouds=rows)


def _connect(monkeypatch: pytest.MonkeyPatch, server: Prices) -> Prices:
    monkeypatch.setattr("headway.cli.common.connect", lambda: server)
    return server


def test_the_table_names_machines_prices_and_their_age(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = _connect(monkeypatch, Prices())
    offers(gpu="h100", count=16, purchase=PurchaseOption.ON_DEMAND)
    assert (server.asked["count"], server.asked["purchase"], server.asked["limit"]) == (16, "on-demand", 30)
    out, err = capsys.readouterr()
    row = out.splitlines()[1].split("  ")
    assert [cell.strip() for cell in row if cell.strip()] == [
        "aws", "p5.48xlarge", "us-east-1", "on-demand", "8 H100 SXM", "80", "192", "2,048", "nvlink efa 3200 Gbit/s",
        "2", "6.88", "110.08", "2025-06-05",
    ]  # fmt: skip
    assert "prices of 2025-06-05 (18 months old), without tax" in err
    assert "3 more offers; list them with --limit" in err
    assert "aws p5.48xlarge (on-demand): list price" in err


def test_no_match_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _connect(monkeypatch, Prices(OffersOut(gpus=0, offers=[], left_off=0)))
    offers(gpu="x900")
    assert capsys.readouterr() == ("", "no offer matches; leave out an option, or see all with headway offers\n")


def test_csv_for_programs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _connect(monkeypatch, Prices())
    offers(output=ReportFormat.csv)
    head, line = capsys.readouterr().out.splitlines()
    row = dict(zip(head.split(","), line.split(","), strict=True))
    assert (row["usd_per_hour"], row["as_of"], row["purchase"]) == ("110.08", "2025-06-05", "on-demand")


def test_a_refresh_says_what_each_cloud_gave(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _connect(monkeypatch, Prices())
    offers(refresh=True)
    err = capsys.readouterr().err
    assert "aws: 2 offers of 2026-11-20" in err
    assert "gcp: prices kept as they were, because answers 404" in err


def test_a_refresh_that_fails_still_shows_the_prices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _connect(monkeypatch, Prices(reachable=False))
    with pytest.raises(Unreachable, match="no prices could be fetched"):
        offers(refresh=True)
    assert "p5.48xlarge" in capsys.readouterr().out
