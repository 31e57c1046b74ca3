"""Each difference between a site and its cluster has a reason from the verdicts or from what Headway always does; others have
none."""

from __future__ import annotations

import pytest

from headway.slurm_import.comparison.compare import Comparison, compare
from headway.slurm_import.comparison.slurm_state import read_state
from headway.slurm_import.importer import SiteFiles, import_site
from tests.support.slurm_sites import FILES
from tests.support.slurm_states import CLUSTER, SITE


def compared(**changes: tuple[str, str]) -> Comparison:
    """Compares the made-up site with its cluster. `changes`: name of a file of the cluster without its end -> (text,
    replacement)."""
    texts = dict(CLUSTER)
    for name, (text, replacement) in changes.items():
        path = next(path for path in texts if path.startswith(name.replace("_", "-")))
        assert text in texts[path]
        texts[path] = texts[path].replace(text, replacement)
    return compare(
        import_site(SiteFiles(FILES)), read_state({**SITE, "passwd": FILES["passwd"]}, {}), read_state(texts, {})
    )


def reasons(found: Comparison) -> dict[tuple[str, str, str], str]:
    return {(one.section, one.name, one.key): one.reason for one in found.differences}


def test_each_difference_of_a_rehearsal_has_a_reason() -> None:
    found = compared()
    assert found.unexplained == []
    assert (found.rehearsal, found.missing) == (True, {})
    assert (
        reasons(found).items()
        >= {
            (
                "config",
                "",
                "EnforcePartLimits",
            ): "Headway sets it: Rejects a job at submission if no requested partition can ever run it.",
            ("config", "", "LaunchType"): "Slurm 24.11 does not have it",
            ("config", "", "SlurmctldHost"): "machines have the cluster's names and addresses",
            ("config", "", "StateSaveLocation"): "Headway has paths and programs of its own",
            ("partition", "gpu_long", "QoS"): "the name of the QOS with the partition's limits",
            ("partition", "gpu_long", "TotalNodes"): "the rehearsal has one node of each group",
            ("partition", "urgent", "DenyAccounts"): "the same accounts: a list of those that may",
            ("qos", "high", "Preempt"): "the site does not preempt by QOS",
            ("account", "bio", "GrpTRESMins"): (
                "this use fades with PriorityDecayHalfLife; a team's cap counts from the start of a period"
            ),
            ("share", "bio/carl", "NormShares"): "users of a team have equal shares",
        }.items()
    )
    assert ("partition", "urgent", "GraceTime") not in reasons(found)


@pytest.mark.parametrize(
    ("file", "text", "replacement", "where"),
    [
        ("scontrol_config", "KillWait                = 30", "KillWait                = 60", ("config", "", "KillWait")),
        ("scontrol_partitions", "7-00:00:00", "1-00:00:00", ("partition", "gpu_long", "MaxTime")),
        (
            "scontrol_partitions",
            "AllowAccounts=it,physics",
            "AllowAccounts=it",
            ("partition", "urgent", "AllowAccounts"),
        ),
        ("scontrol_nodes", "gpu:a100:4", "gpu:a100:2", ("nodes", "gpu", "Gres")),
        ("scontrol_nodes", "RealMemory=256000", "RealMemory=128000", ("nodes", "cn", "RealMemory")),
        ("scontrol_nodes", "cn,skylake,ib", "cn,ib", ("nodes", "cn", "Features")),
        ("sacctmgr_assoc", "helix|it|dora|||1|||||||it|it\n", "", ("account", "it", "users")),
        ("sacctmgr_assoc", "gres/gpu=4", "gres/gpu=8", ("account", "physics", "GrpTRES")),
        ("sacctmgr_assoc", "bio|||science", "bio|||root", ("account", "bio", "ParentName")),
        ("sacctmgr_assoc", "carl|||1|2", "carl|||1|3", ("account", "bio/carl", "MaxJobs")),
        ("sacctmgr_assoc", "alice|||1|20", "alice|||1|", ("account", "physics/alice", "MaxJobs")),
        (
            "sacctmgr_assoc",
            "physics|||science|3||gres/gpu=4|||||high,",
            "physics|||science|3||gres/gpu=4|||||",
            ("account", "physics", "QOS"),
        ),
        ("sacctmgr_assoc", "it|it\n", "it|high\n", ("account", "it", "Def QOS")),
        ("sacctmgr_qos", "high|100", "high|10", ("qos", "high", "Priority")),
        ("sacctmgr_qos", "high|100|||2.0", "other|100|||2.0", ("qos", "high", "")),
        ("sacctmgr_qos", "cpu=64,gres/gpu=2", "cpu=64,gres/gpu=8", ("qos", "gpulimit", "MaxTRESPU")),
        ("users", "alice:2001", "alice:20001", ("user", "alice", "uid")),
        ("sshare", "0.392157", "0.800000", ("share", "it", "NormShares")),
    ],
)
def test_difference_without_a_reason_is_unexplained(
    file: str, text: str, replacement: str, where: tuple[str, str, str]
) -> None:
    found = compared(**{file: (text, replacement)})
    assert where in {(one.section, one.name, one.key) for one in found.unexplained}


def test_partition_that_is_gone_is_unexplained() -> None:
    found = compared(scontrol_partitions=("PartitionName=cpu ", "PartitionName=other "))
    assert {(one.section, one.name) for one in found.unexplained} == {("partition", "cpu"), ("partition", "other")}


def test_part_that_a_side_lacks_is_not_compared() -> None:
    old = read_state({"scontrol-config.txt": SITE["scontrol-config.txt"]}, {"sshare.txt": "sshare: error"})
    found = compare(import_site(SiteFiles(FILES)), old, read_state(CLUSTER, {}))
    assert {one.section for one in found.differences} == {"config"}
    assert found.missing["sshare.txt of the site"] == "sshare: error"
    assert found.missing["scontrol-nodes.txt of the site"] == "the file is not there"


def test_team_that_is_gone_is_unexplained() -> None:
    found = compared(sacctmgr_assoc=("helix|physics|||science|3||gres/gpu=4|||||high,physics|physics\n", ""))
    assert ("account", "physics", "") in {(one.section, one.name, one.key) for one in found.unexplained}


def test_qos_of_a_single_user_is_compared() -> None:
    """The cluster's lists of users are those of their accounts unless they are changed there by hand."""
    changed = compared(sacctmgr_assoc=("helix|bio|carl|||1|2||||||bio|bio", "helix|bio|carl|||1|2||||||bio,high|bio"))
    (found,) = changed.unexplained
    assert (found.name, found.key, found.old, found.new) == ("bio/carl", "QOS", "normal", "bio,high")


def test_memory_of_the_whole_cluster_is_that_of_its_partitions() -> None:
    files = {**FILES, "slurm.conf": f"{FILES['slurm.conf']}DefMemPerCPU=4000\n", "passwd": FILES["passwd"]}
    old = {path: text.replace("GraceTime=0", "GraceTime=0 DefMemPerNode=UNLIMITED") for path, text in SITE.items()}
    old["scontrol-config.txt"] += "DefMemPerCPU            = 4000\n"
    new = {path: text.replace("GraceTime=120", "GraceTime=120 DefMemPerCPU=4000") for path, text in CLUSTER.items()}
    imported, site = import_site(SiteFiles(files)), read_state({**old, "passwd": FILES["passwd"]}, {})
    found = compare(imported, site, read_state(new, {}))
    assert found.unexplained == []
    other = {path: text.replace("MemPerCPU=4000", "MemPerCPU=9000") for path, text in new.items()}
    assert {one.key for one in compare(imported, site, read_state(other, {})).unexplained} == {"DefMemPerCPU"}
    why = "each partition without a value of its own has that of the site's cluster"
    assert {(one.section, one.key) for one in found.differences if one.reason == why} == {
        ("config", "DefMemPerCPU"), ("partition", "DefMemPerCPU"), ("partition", "DefMemPerNode"),
    }  # fmt: skip
