"""Partitions of a site are carried with what Slurm does where a line says nothing."""

from __future__ import annotations

from headway.slurm_import.importer import Imported, SiteFiles, import_site
from headway.slurm_import.verdicts import Kind
from tests.support.slurm_sites import NODES, verdict


def with_lines(lines: str) -> Imported:
    return import_site(SiteFiles({"slurm.conf": NODES + lines}))


def test_partition_without_its_accounts_says_that_it_is_open() -> None:
    site = with_lines("PartitionName=a Nodes=ALL AllowAccounts=secretlab\n")
    found = verdict(site, "AllowAccounts")
    assert (found.kind, "open to all" in found.why) == (Kind.NOT_CARRIED, True)


def test_defaults_of_memory_and_cpus_are_those_of_each_partition() -> None:
    """A site gives them once for the whole cluster; a cluster file has them for partitions."""
    site = with_lines(
        "DefMemPerCPU=1000\nDefMemPerCPU=4000\nMaxMemPerNode=12000\nDefCpuPerGPU=x\nPartitionName=a Nodes=ALL\n"
        "PartitionName=b Nodes=ALL DefMemPerCPU=2000 MaxMemPerCPU=3000\nPartitionName=c Nodes=ALL DefMemPerNode=9000\n"
    )
    assert site.faults == []
    assert {name: fields["slurm"] for name, fields in site.spec["partitions"].items()} == {
        "a": {"DefMemPerCPU": "4000", "MaxMemPerNode": "12000"},
        "b": {"DefMemPerCPU": "2000", "MaxMemPerCPU": "3000"},
        "c": {"MaxMemPerNode": "12000"},
    }
    found = verdict(site, "DefMemPerCPU", value="4000")
    assert (found.kind, found.place) == (Kind.KEPT, "partitions.*.slurm.DefMemPerCPU")
    assert verdict(site, "DefMemPerCPU", value="1000").why == "the same key on a later line counts"
    assert verdict(site, "DefCpuPerGPU").kind is Kind.NOT_CARRIED


def test_last_of_several_default_partitions_counts() -> None:
    """As in Slurm; seen in a public slurm.conf."""
    site = with_lines("PartitionName=a Nodes=ALL Default=YES\nPartitionName=b Nodes=ALL Default=YES\n")
    assert (site.faults, site.spec["partitions"]) == ([], {"a": {}, "b": {"default": True}})


def test_partition_of_the_controller_alone_says_why_it_is_not_carried() -> None:
    lines = "SlurmctldHost=n1\nNodeName=n[1-2] CPUs=8\nPartitionName=head Nodes=n1\nPartitionName=work Nodes=n2\n"
    found = import_site(SiteFiles({"slurm.conf": lines}))
    assert list(found.spec["partitions"]) == ["work"]
    assert "or are the controller" in next(
        v.why for i, v in found.entries if (i.key, i.value) == ("PartitionName", "head")
    )
