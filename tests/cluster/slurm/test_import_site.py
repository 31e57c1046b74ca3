"""A hand-made Slurm site (24.11 and 22.05) with 40 partitions, nested accounts and QOS is imported over SSH. The imported
cluster runs in local containers, and what its Slurm says is that of the old site, apart from differences that have a reason
here."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.lab import Lab
from tests.cluster.providers.bare_machines import Bare
from tests.cluster.slurm import old_site

# Keys of `scontrol show partition` that may differ, and why
_PARTITION = {
    "Nodes": "nodes have names of slots, and a rehearsal has one of each group",
    "TotalNodes": "one node of each group",
    "TotalCPUs": "one node of each group",
    "TRES": "one node of each group",
    "DefMemPerCPU": "Headway gives each job a default memory",
    "DefMemPerNode": "the default memory is for each CPU",
    "JobDefaults": "Headway gives each GPU its part of the node's CPUs and memory",
    "TRESBillingWeights": "Headway weights resources in GPUs where the site has no weights",
    "GraceTime": "Headway gives preempted jobs two minutes",
    "PreemptMode": "each partition says it; at the site most have the cluster's",
    "QoS": "Headway names QOS of partitions itself",
    "AllowAccounts": "DenyAccounts became a list of all other accounts",
    "DenyAccounts": "it became AllowAccounts",
    "RootOnly": "not carried, as the report says",
    "ExclusiveTopo": "Slurm 22.05 does not have it",
    "MaxCPUsPerSocket": "Slurm 22.05 does not have it",
    "NodeSets": "Slurm 22.05 does not print it",
}
# Keys of the whole cluster that were kept or carried: both sites have the same values
_CONFIG = ("PriorityWeightAge", "PriorityWeightFairShare", "PriorityWeightPartition", "KillWait", "Licenses", "PreemptType",
           "SelectType", "PriorityType", "GresTypes")  # fmt: skip


@pytest.fixture(params=["debian13", "debian12"])  # Slurm 24.11 and 22.05
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bare]:
    made = Bare(tmp_path / "bare", request.param, shared=False, packages=old_site.PACKAGES)
    try:
        made.up(10)
        made.sudo([10], password=False)
        old_site.stand_up(made)
        yield made
    finally:
        made.down()


def show(name: str, key: str, old: str, new: str, reason: str) -> None:
    """Prints what the old and the new cluster say, side by side."""
    sys.stdout.write(f"{name:9} {key:24} {old[:40]:40} {new[:40]:40} {reason}\n")


def records(text: str, first: str) -> dict[str, dict[str, str]]:
    """Returns the records of `scontrol show ... -o` by the value of their first key."""
    found = {}
    for line in text.splitlines():
        pairs = dict(re.findall(r"(\w+)=(.*?)(?= \w+=|$)", line.strip()))
        if first in pairs:
            found[pairs[first].lower()] = pairs
    return found


def config(text: str) -> dict[str, str]:
    """Returns `scontrol show config`."""
    return {
        key.strip(): value.strip() for key, _, value in (line.partition("=") for line in text.splitlines()) if value
    }


def shares(text: str) -> dict[str, float]:
    """Returns the part of the cluster of each account of ACCOUNTS, from `sshare -nP -a -o account,user,normshares`. Accounts
    are indented by their place in the tree, and each has its part of its parent's."""
    found: dict[str, float] = {}
    above: list[float] = []
    for line in text.splitlines():
        account, user, part = line.split("|")[:3]
        if user or account == "root":
            continue
        depth = len(account) - len(account.lstrip())
        above = [*above[: depth - 1], float(part)]
        found[account.strip()] = math.prod(above)
    parts = {name: part for name, part in found.items() if name in old_site.TEAMS}
    return {name: part / sum(parts.values()) for name, part in parts.items()}


def test_imported_cluster_is_the_old_site(site: Bare, tmp_path: Path) -> None:
    lab = Lab(tmp_path / "state", name=old_site.NAME)
    folder, ssh = tmp_path / "imported", tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    known = f"-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={tmp_path}/known_hosts"
    ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -i {site.key} {known} "$@"\n')
    ssh.chmod(0o755)
    path = f"{ssh.parent}:{lab.env['PATH']}"
    source = f"ssh://ops@{site.address(10)}"
    digests = "find /etc /home /root /tmp /var/tmp -xdev -type f -exec sha256sum {} + | sort"
    before = site.inside(10, "sh", "-c", digests)

    told = lab.cli("import", "--from", source, "--to", str(folder), "--rehearse", "-o", "json", PATH=path).json()

    assert (told["nodes"], told["users"], told["unread"], told["notes"]) == (52, 5, {}, [])
    assert len(told["cluster"]["partitions"]) == old_site.PARTITIONS
    assert sum(told["counts"].values()) == len(told["verdicts"])
    assert old_site.PASSWORD not in "".join(file.read_text() for file in folder.iterdir())
    assert site.inside(10, "sh", "-c", digests) == before  # nothing was written there

    try:
        lab.cli("apply", str(folder / "rehearsal.yaml"), "--yes", timeout_s=900)
        old_partitions = records(site.inside(10, "scontrol", "show", "partition", "-o"), "PartitionName")
        new_partitions = records(lab.head("scontrol", "show", "partition", "-o").out, "PartitionName")
        assert old_partitions.keys() == new_partitions.keys()
        unexplained = []
        for name, old in old_partitions.items():
            new = new_partitions[name]
            for key in sorted(old.keys() | new.keys()):
                left, right = old.get(key, "").lower(), new.get(key, "").lower()
                if left != right:
                    show(name, key, left, right, _PARTITION.get(key, "NOT EXPLAINED"))
                    unexplained += [] if key in _PARTITION else [(name, key, left, right)]
        assert unexplained == []

        old_config = config(site.inside(10, "scontrol", "show", "config"))
        new_config = config(lab.head("scontrol", "show", "config").out)
        for key in _CONFIG:
            show("", key, old_config[key], new_config[key], "")
            assert old_config[key].removesuffix(" sec") == new_config[key].removesuffix(" sec"), key

        asked = ["sshare", "-nP", "-a", "-o", "account,user,normshares"]
        old_shares, new_shares = shares(site.inside(10, *asked)), shares(lab.head(*asked).out)
        for name, part in old_shares.items():
            show(name, "NormShares", f"{part:.4f}", f"{new_shares[name]:.4f}", "")
        assert new_shares == pytest.approx(old_shares, abs=0.005)
        assert new_shares.keys() == old_site.TEAMS.keys()
    finally:
        lab.down()
