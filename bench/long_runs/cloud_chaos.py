"""Rents and returns machines while launches are refused, answers are lost and servers are killed: `python bench
long_runs/cloud_chaos --events 300 --seed 1`.

The cloud is a stand-in of EC2 whose instances have no machines. A server in a process of its own rents machines for slots, one
by one or several for a job, returns them, and looks at what is rented, by the code of Headway's server. Before some events a
launch is made to fail, its answer to be lost, or new instances to be missing in lists; during some the server is killed; and
some instances are ended in the console. In the end the cluster is taken down. It ends with 1 if an instance or a volume is
left, if two machines were rented for one slot, or if the ledger has other seconds or dollars than the cloud's own record."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.cloud.ec2_stand_in import REGION, Ec2StandIn, aws_environment  # noqa: E402
from tests.support.clusters import builders  # noqa: E402

from headway.billing.rental_spend import rental_spend  # noqa: E402
from headway.catalog.plans import load_catalogue  # noqa: E402
from headway.catalog.providers import AWS  # noqa: E402
from headway.cluster.keys.secrets import new_key, public_key  # noqa: E402
from headway.domain.cluster import Cluster  # noqa: E402
from headway.domain.machines.cloud_settings import CloudSettings  # noqa: E402
from headway.domain.machines.machine import MachineRequest  # noqa: E402
from headway.errors import HeadwayError, Unreachable  # noqa: E402
from headway.providers.registry import open_provider  # noqa: E402
from headway.server.cluster_backend.rentals import RentalsBackend  # noqa: E402
from headway.server.workers.rented_machines import RentedMachinesCheck  # noqa: E402
from headway.store import ClusterRow, open_store  # noqa: E402

NAME, NODES = "lab", 6
PRICES = {"m5.16xlarge": "3.68", "m5.12xlarge": "2.76", "m5.xlarge": "0.23"}
SETTINGS = CloudSettings(
    REGION,
    zones=(f"{REGION}a", f"{REGION}b"),
    types={"cpu-64": ("m5.16xlarge", "m5.12xlarge")},
    head_types=("m5.xlarge",),
)
FAULTS = ("", "", "", "refuse", "lose", "lose all", "hide", "kill", "kill", "console")
PATIENCE_S = 300.0
_ENDED = re.compile(r"\((.*) UTC\)")


def lab(settings: CloudSettings) -> Cluster:
    """Returns the cluster."""
    plan = load_catalogue()["cpu-64"]
    return builders.cluster(NODES, 0, name=NAME, plan=plan, provider=AWS, cloud=settings)


@dataclass
class Worker:
    """The server's part: carries out one order at a time."""

    cluster: Cluster
    provider: Any
    store: Any
    key: str

    def __post_init__(self) -> None:
        connections = SimpleNamespace(remote=self._remote)
        context = SimpleNamespace(provider=self.provider, connections=connections)
        pool: Any = SimpleNamespace(context=self._returning(context))
        state: Any = SimpleNamespace(
            backend=SimpleNamespace(rentals=RentalsBackend(pool)),
            clusters=SimpleNamespace(resolved=self._returning(self.cluster)),
            clock=time.time,
            live=SimpleNamespace(add_notice=lambda *_, **__: None),
            store=self.store,
        )
        self.check = RentedMachinesCheck(state)

    @staticmethod
    def _returning(value: Any) -> Any:
        async def answer(_: Any) -> Any:
            return value

        return answer

    @staticmethod
    async def _remote(machine: Any, *_: Any, **__: Any) -> Any:
        raise Unreachable(f"{machine.name} has no machine behind it")

    async def report(self, *_: Any, **__: Any) -> None: ...

    def request(self, name: str) -> MachineRequest:
        """Returns the request for a machine."""
        keys = (self.key, public_key(self.key), public_key(self.key))
        return MachineRequest(NAME, name, "", self.cluster.image, *keys, head=name == self.cluster.head)

    async def rent(self, names: list[str]) -> None:
        """Rents machines and makes them the cluster's."""
        await self.provider.prepare(self.cluster)
        offers = await self.provider.offers(self.cluster, names[0])
        found = await self.provider.rent(self.cluster, [self.request(name) for name in names], offers, self.report)
        for name in found:
            await self.provider.settle(NAME, name, " ".join(public_key(self.key).split()[:2]))
            await self.provider.create(self.request(name))

    async def give_up(self, names: list[str]) -> None:
        """Returns machines."""
        for name in names:
            await self.provider.give_up(NAME, name)

    async def look(self, _: list[str]) -> None:
        """Does what the server does once a minute."""
        row = ClusterRow(NAME, {}, {}, "ready", "root", 0.0)
        await self.check._check(row)  # noqa: SLF001: the worker's loop would wait a minute

    async def down(self, _: list[str]) -> None:
        """Ends everything, and records when."""
        await self.provider.release(NAME, delete_data=True)
        await self.store.rentals.record(NAME, await self.provider.rentals(NAME), int(time.time()))


async def serve(state_dir: Path, image: str) -> None:
    """Reads orders from standard input and prints the result of each."""
    settings = CloudSettings(**{**{f: getattr(SETTINGS, f) for f in SETTINGS.__dataclass_fields__}, "image": image})
    key = state_dir / "key"
    if not key.exists():
        key.write_text(new_key())
    store = await open_store(state_dir)
    provider = open_provider("aws", state_dir, cloud=settings)
    worker = Worker(lab(settings), provider, store, key.read_text())
    print(json.dumps({"ready": True}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        try:
            await getattr(worker, order["do"])(order["names"])
            said = {"done": True}
        except HeadwayError as error:
            said = {"done": False, "kind": error.kind, "error": error.message}
        print(json.dumps(said), flush=True)
    await store.close()


@dataclass
class Server:
    """The process of the server. It is started again when it was killed."""

    state_dir: Path
    image: str
    env: dict[str, str]
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts the process and waits until it takes orders."""
        argv = [sys.executable, __file__, "--serve", str(self.state_dir), "--image", self.image]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(argv, text=True, env=self.env, **pipes)
        assert self._read() is not None, "the server does not start"

    def do(self, what: str, names: list[str], kill_after_s: float | None = None) -> dict[str, Any] | None:
        """Returns the result of an order, None if the server was killed meanwhile."""
        if self.process is None:
            self.start()
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, "names": names}) + "\n")
        self.process.stdin.flush()
        if kill_after_s is None:
            return self._read()
        time.sleep(kill_after_s)
        self.end(signal.SIGKILL)
        return None

    def end(self, number: int = signal.SIGTERM) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None

    def _read(self) -> dict[str, Any] | None:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None


@dataclass
class Chaos:
    """The events of one seed."""

    ec2: Ec2StandIn
    server: Server
    dice: random.Random
    names: tuple[str, ...]
    counts: Counter[str] = field(default_factory=Counter)
    twice: int = 0  # looks in which a slot had two machines, and in two looks in a row

    def event(self) -> None:
        """Does one thing, perhaps with one fault."""
        fault = self.dice.choice(FAULTS)
        what = self.dice.choice(("rent", "rent", "rent", "give_up", "look"))
        count = self.dice.choice((1, 1, 1, 2, 3)) if what == "rent" else 1
        names = self.dice.sample(self.names[1:], count) if count > 1 else [self.dice.choice(self.names)]
        self._prepare(fault)
        said = self.server.do(what, names, self.dice.uniform(0.0, 1.5) if fault == "kill" else None)
        self.ec2.refusals.clear()
        self.ec2.losing.clear()
        self.ec2.hides = 0
        self.counts[what] += 1
        if said is not None and not said["done"]:
            self.counts[f"refused: {said['kind']}"] += 1
        if self.dice.random() < 0.3:
            self.server.do("look", [])

    def _prepare(self, fault: str) -> None:
        self.counts[fault or "no fault"] += 1
        if fault == "refuse":
            kind = self.dice.choice(("m5.16xlarge", "m5.12xlarge"))
            self.ec2.refuse("RunInstances", "InsufficientInstanceCapacity", times=6, InstanceType=kind)
        elif fault == "lose":
            self.ec2.losing["RunInstances"] = 1
        elif fault == "lose all":  # the client asks three times
            self.ec2.losing["RunInstances"] = 3
        elif fault == "hide":
            self.ec2.hides = 2
        elif fault == "console":
            living = self.ec2.living()
            if living:
                self.ec2.client().terminate_instances(InstanceIds=[self.dice.choice(living)["InstanceId"]])


def cloud_record(ec2: Ec2StandIn) -> dict[str, tuple[int, Decimal]]:
    """Returns the cloud's own record: instance -> (seconds, USD)."""
    found = {}
    for reservation in ec2.client().describe_instances()["Reservations"]:
        for row in reservation["Instances"]:
            ended = _ENDED.search(row.get("StateTransitionReason", ""))
            assert ended, f"{row['InstanceId']} still runs"
            end = datetime.strptime(ended[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
            seconds = int(end.timestamp()) - int(row["LaunchTime"].timestamp())
            found[row["InstanceId"]] = seconds, Decimal(PRICES[row["InstanceType"]]) * seconds / 3600
    return found


async def ledger(state_dir: Path) -> dict[str, tuple[int, Decimal]]:
    """Returns the same from the ledger."""
    store = await open_store(state_dir)
    try:
        rentals = [rental for _, rental in await store.rentals.between(0, 2**40)]
    finally:
        await store.close()
    spends = {one.instance: rental_spend([one], 0, int(time.time()) + 1) for one in rentals}
    return {instance: (spend.seconds, spend.usd) for instance, spend in spends.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--image", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve, options.image))
        return 0
    with tempfile.TemporaryDirectory() as folder, Ec2StandIn(prices=dict(PRICES)) as ec2:
        image = ec2.client().describe_images()["Images"][0]["ImageId"]
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        server = Server(Path(folder), image, {**os.environ, **aws_environment(ec2.url), "PYTHONPATH": path})
        chaos = Chaos(ec2, server, random.Random(options.seed), lab(SETTINGS).machine_names)
        began = time.monotonic()
        try:
            for number in range(options.events):
                chaos.event()
                if number % 50 == 49:
                    print(f"{number + 1} events, {len(ec2.living())} machines rented", flush=True)
            return finish(chaos, Path(folder), time.monotonic() - began)
        finally:
            server.end()


def finish(chaos: Chaos, folder: Path, seconds: float) -> int:
    """Takes the cluster down, compares, and prints the figures."""
    ec2, server = chaos.ec2, chaos.server
    for _ in range(3):  # a launch that was not answered is unclaimed for two looks
        server.do("look", [])
    by_name = Counter(tag["Value"] for one in ec2.living() for tag in one["Tags"] if tag["Key"] == "headway:try")
    living = len(ec2.living())
    said = server.do("down", [])
    assert said is not None
    assert said["done"], said
    server.end()
    left, volumes = len(ec2.living()), len(ec2.client().describe_volumes()["Volumes"])
    theirs, ours = cloud_record(ec2), asyncio.run(ledger(folder))
    wrong = [name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name)]
    print(f"{sum(chaos.counts[what] for what in ('rent', 'give_up', 'look'))} events in {seconds:.0f} s")
    print("  " + ", ".join(f"{what}: {count}" for what, count in sorted(chaos.counts.items())))
    print(f"{len(theirs)} instances were launched, {living} ran at the end ({sum(by_name.values())} with tags)")
    print(f"left: {left} instances, {volumes} volumes")
    for whose, record in (("cloud", theirs), ("ledger", ours)):
        total, usd = sum(s for s, _ in record.values()), sum((u for _, u in record.values()), Decimal(0))
        print(f"{whose}: {len(record)} instances, {total} s, {usd:.6f} USD")
    for name in sorted(wrong):
        print(f"  differs: {name}: cloud {theirs.get(name)}, ledger {ours.get(name)}")
    return 1 if wrong or left or volumes else 0


if __name__ == "__main__":
    sys.exit(main())
