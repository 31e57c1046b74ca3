"""cloud ls prints what is rented, and says what it does not know."""

from __future__ import annotations

import json
from decimal import Decimal

from headway.domain.machines.offer import PurchaseOption
from headway.schemas.nodes.rentals import RentalSpendOut, RentedOut, RentedThingOut, SeenPriceOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def thing(**others: object) -> RentedThingOut:
    fields = {
        "id": "i-1", "kind": "instance", "cluster": "lab", "machine": "lab-1-1", "description": "p5.48xlarge",
        "zone": "eu-central-1a", "state": "running", "since": 1_795_773_600.0, "usd_per_hour": "55.04", "usd": "110.08",
    } | others  # fmt: skip
    return RentedThingOut.model_validate(fields)


def rented(*things: RentedThingOut, silent: tuple[str, ...] = ()) -> RentedOut:
    usd = sum((one.usd_per_hour or Decimal(0) for one in things), Decimal(0))
    return RentedOut(things=list(things), silent=list(silent), usd_per_hour=usd)


def test_each_thing_has_its_price_and_its_cost_so_far(cli: Cli) -> None:
    disk = thing(id="vol-1", kind="volume", machine="", description="64 GiB", usd_per_hour=None, usd=None)
    cli.api.on("nodes.rented", rented(thing(), disk))
    done = cli("cloud", "ls")
    assert done.code == 0
    assert "instance p5.48xlarge" in done.out
    assert "55.04" in done.out
    assert "110.08" in done.out
    assert "volume 64 GiB" in done.out
    assert done.out.splitlines()[-1] == "55.04 USD an hour, not counting things whose price is not known"
    assert json.loads(cli("cloud", "ls", "-o", "json").out)["things"][0]["id"] == "i-1"


def test_nothing_rented(cli: Cli) -> None:
    cli.api.on("nodes.rented", rented())
    assert cli("cloud", "ls").out == "nothing is rented\n"


def test_region_without_answer_is_named_and_fails(cli: Cli) -> None:
    cli.api.on("nodes.rented", rented(silent=("aws eu-central-1: it does not answer",)))
    done = cli("cloud", "ls")
    assert done.code == 1
    assert "not known: aws eu-central-1: it does not answer" in done.err


def test_spend_of_the_month_is_said_for_each_cluster(cli: Cli) -> None:
    spent = RentalSpendOut(cluster="lab", usd=Decimal("12.50"), seconds=7200, unpriced_s=3600)
    cli.api.on("nodes.rented", rented().model_copy(update={"since": 1_795_773_600.0, "spent": [spent]}))
    lines = cli("cloud", "ls").out.splitlines()
    assert lines[0] == "nothing is rented"
    assert lines[1].startswith("lab: 12.50 USD for instances since 2026-")
    assert lines[1].endswith(", without 1.0 hours whose price is not known")


def test_machines_that_were_taken_back_are_counted(cli: Cli) -> None:
    spent = RentalSpendOut(cluster="lab", usd=Decimal("12.50"), seconds=7200, unpriced_s=0, taken_back=2)
    cli.api.on("nodes.rented", rented().model_copy(update={"since": 1_795_773_600.0, "spent": [spent]}))
    assert cli("cloud", "ls").out.splitlines()[1].endswith("; the cloud took 2 spot machines back")


def test_prices_are_those_that_the_clouds_asked(cli: Cli) -> None:
    seen = SeenPriceOut(
        cloud="aws", zone="eu-central-1a", instance_type="p5.48xlarge", purchase=PurchaseOption.SPOT,
        usd_per_hour=Decimal("20.5"), lowest=Decimal("19.1234"), highest=Decimal("31"), since=1_795_773_600,
        seen_at=1_795_777_200, rented=3, taken_back=1,
    )  # fmt: skip
    cli.api.on("nodes.rented", rented().model_copy(update={"prices": [seen]}))
    _, row = cli("cloud", "ls", "--prices").out.splitlines()
    words = row.split()
    assert words[:4] == ["aws", "p5.48xlarge", "eu-central-1a", "spot"]
    assert {"20.5000", "19.1234", "31.0000"} <= set(words)
    assert words[-2:] == ["3", "1"]
    cli.api.on("nodes.rented", rented())
    assert cli("cloud", "ls", "--prices").out.startswith("no prices were seen")
