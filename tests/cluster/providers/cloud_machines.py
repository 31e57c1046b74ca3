"""The machines of tests.support.cloud.ec2_stand_in, and cluster files for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.providers.machine_bodies import MachineBodies
from tests.support.cloud.ec2_stand_in import REGION, Ec2StandIn

from headway.domain.slurm.hostlist import expand

ZONE = f"{REGION}a"


@dataclass
class CloudMachines(MachineBodies):
    """The machines of a stand-in of EC2, in a subnet of their own."""

    cloud: Ec2StandIn

    def __post_init__(self) -> None:
        super().__post_init__()
        client = self.cloud.client()
        vpc = client.create_vpc(CidrBlock=self.bare.subnet)["Vpc"]["VpcId"]
        place = {"VpcId": vpc, "CidrBlock": self.bare.subnet, "AvailabilityZone": ZONE}
        self.subnet = client.create_subnet(**place)["Subnet"]["SubnetId"]
        self.image = client.describe_images()["Images"][0]["ImageId"]

    def spec(self, name: str, groups: str, types: str, more: str = "") -> Path:
        """Writes a cluster file and returns its path. `groups`: the groups of nodes, `types`: the instance types of their
        plans, as YAML in one line."""
        file = self.folder / f"{name}.yaml"
        where = f"region: {REGION}, subnets: [{self.subnet}], image: {self.image}, public_addresses: false"
        sizes = f"types: {types}, head_types: [m5.xlarge, m5.large]"
        text = f"name: {name}\nprovider: aws\nimage: debian13\ngroups: {groups}\n"
        file.write_text(f"{text}cloud: {{{where}, {sizes}}}\n{more}")
        return file

    def instance_of(self, machine: str) -> dict[str, Any]:
        """Returns the living instance with this name."""
        return next(one for one in self.cloud.living() if self.machine_of(one) == machine)

    @staticmethod
    def machine_of(instance: Mapping[str, Any]) -> str:
        """Returns the name of an instance, "" if it has none."""
        tagged = next((tag["Value"] for tag in instance["Tags"] if tag["Key"] == "headway:machine"), "")
        names = expand(tagged)
        return names[instance["AmiLaunchIndex"]] if names else ""
