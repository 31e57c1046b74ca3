"""How long a server takes to ask a cloud for what a plan needs, in five regions at once, where each request takes 100 ms:
`python bench server/cloud_plan`. The regions are those of a stand-in of EC2; the goal is 3 s."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.cloud.ec2_stand_in import Answer, Ec2StandIn, aws_environment

from headway.catalog.instance_types import HEAD, types_for
from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.offer import PurchaseOption
from headway.providers.cloud.aws.cloud import AwsCloud

REGIONS = ("us-east-1", "us-east-2", "us-west-2", "eu-central-1", "eu-west-1")
PLANS = (HEAD, "cpu-64", "l40s-4")
GOAL_S, DELAY_S = 3.0, 0.1


class SlowEc2(Ec2StandIn):
    """A stand-in whose answers take as long as those over the internet. Each is computed once, before the first round that
    counts: moto needs longer for some than Amazon does."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.known: dict[tuple[str, bytes], Answer] = {}

    def _answer(self, environ: Any, body: bytes, action: str, form: dict[str, str], *, console: bool) -> Answer:
        region = environ.get("HTTP_AUTHORIZATION", "").partition("/")[2].split("/")[1]
        key = (f"{region} {action}", body)
        if key in self.known:
            time.sleep(DELAY_S)
        else:
            self.known[key] = super()._answer(environ, body, action, form, console=console)
        return self.known[key]


async def ask(region: str) -> int:
    """Asks for everything that a plan says of these machines. Returns the number of offers."""
    cloud = AwsCloud(region)
    zones = await cloud.zones(CloudSettings(region))

    async def one(plan: str) -> int:
        offers = await cloud.offers(types_for("aws", plan), zones, PurchaseOption.ON_DEMAND)
        if offers:
            await cloud.quota(offers[0])
        return len(offers)

    return sum(await asyncio.gather(*map(one, PLANS)))


async def ask_all() -> int:
    return sum(await asyncio.gather(*map(ask, REGIONS)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with SlowEc2(prices={"m5.xlarge": "0.23", "m7i.16xlarge": "3.2"}) as ec2:
        os.environ.update(aws_environment(ec2.url))
        times: list[float] = []
        asyncio.run(ask_all())
        ec2.requests.clear()
        for number in range(rounds):
            began = time.perf_counter()
            offers = asyncio.run(ask_all())
            times.append(time.perf_counter() - began)
            print(
                f"round {number + 1}: {offers} offers of {len(REGIONS)} regions, {len(ec2.requests)} requests: {times[-1]:.2f} s"
            )
            ec2.requests.clear()
    median = sorted(times)[len(times) // 2]
    print(f"median {median:.2f} s, goal {GOAL_S:.0f} s; load average {os.getloadavg()[0]:.1f}")
    return 0 if median <= GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main())
