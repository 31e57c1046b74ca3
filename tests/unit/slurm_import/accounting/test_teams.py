"""Accounts below each other become teams below each other, with their limits and those of their users."""

from __future__ import annotations

from headway.catalog.plans import load_catalogue
from headway.changes.desired_accounts import desired_accounts
from headway.clusterfile.load import resolve_cluster_file
from headway.slurm_import.verdicts import Kind
from tests.support.slurm_sites import NODES, imported, verdict

TREE = """Cluster - 'lab':DefaultQOS='normal':Fairshare=1:MaxSubmitJobs=50:QOS='normal'
Parent - 'root'
Account - 'science':Fairshare=60:GrpTRES='gres/gpu=8':GrpJobs=30:MaxJobs=5:QOS='normal,standby'
Account - 'it':Fairshare=parent:QOS='normal,high':DefaultQOS='high'
Parent - 'science'
Account - 'physics':Fairshare=3:QOS='+high':MaxJobs=7
Account - 'bio':GrpTRES='cpu=100,gres/gpu=2'
User - 'dean':Fairshare=1
Parent - 'physics'
User - 'alice':MaxJobs=2:GrpTRES='gres/gpu=1,cpu=8':GrpTRESMins='gres/gpu=50':GrpSubmitJobs=9
User - 'carl':MaxJobs=7:QOS='normal,standby,high,extra':DefaultQOS='standby'
Parent - 'bio'
User - 'bob':MaxJobs=0:MaxWallDurationPerJob=60:QOS='normal,standby'
User - 'bob':Partition='gpu':MaxJobs=3
Parent - 'it'
User - 'dora'
"""


def test_limits_of_accounts_and_users_are_those_of_teams() -> None:
    site = imported(sacctmgr__dump=TREE)
    teams = site.spec["teams"]
    assert site.faults == []
    assert (teams["science"]["limits"], teams["science"]["share"]) == (
        {"gpus": 8, "running_jobs": 30, "per_user": {"running_jobs": 5, "submitted_jobs": 50}},
        60,
    )
    assert teams["physics"]["parent"] == teams["bio"]["parent"] == "science"
    assert teams["physics"]["limits"] == {
        "per_user": {"running_jobs": 7, "submitted_jobs": 50},
        "users": {
            "alice": {"running_jobs": 2, "gpus": 1, "cpus": 8, "recent_gpu_hours": 0.833334, "submitted_jobs": 9},
        },
    }
    # a limit of each user holds for the accounts below, unless they set their own
    assert teams["bio"]["limits"] == {"gpus": 2, "cpus": 100, "per_user": {"running_jobs": 5, "submitted_jobs": 50}}
    assert verdict(site, "MaxJobs", record="User=carl").kind is Kind.SAME
    assert "0 lets no job run" in verdict(site, "MaxJobs", value="0").why
    assert "partition gpu only" in verdict(site, "MaxJobs", value="3").why
    assert verdict(site, "GrpTRES", value="cpu=100").place == "teams.bio.limits.cpus, teams.bio.limits.gpus"
    assert "default_qos" in verdict(site, "MaxWallDurationPerJob").instead
    assert "the team's is 1" in verdict(site, "Fairshare", value="parent").why


def test_hours_of_a_user_are_the_same_minutes_in_slurm() -> None:
    site = imported(sacctmgr__dump=TREE)
    cluster, _ = resolve_cluster_file(site.spec, load_catalogue(site.catalogue), owner="ann")
    found = {(one.user, one.account): one.limits for one in desired_accounts(cluster).associations}
    assert found["alice", "physics"]["GrpTRESMins"] == "gres/gpu=50"


def test_limits_on_a_type_of_gpus_are_read_to_their_end() -> None:
    site = imported(
        sacctmgr__dump="Cluster - 'lab'\nParent - 'root'\nAccount - 'ml':GrpTRES=cpu=9,gres/gpu:a100=4,gres/gpu=8:GrpJobs=2\n"
    )
    assert site.spec["teams"]["ml"]["limits"] == {"cpus": 9, "gpus": 8, "running_jobs": 2}
    assert "no limit on gres/gpu:a100=4" in verdict(site, "GrpTRES").why


def test_lists_of_partitions_hold_for_accounts_below_since_23_11() -> None:
    """Seen on real Slurm: 24.11 accepts a job of an account below an allowed one, 22.05 refuses it."""
    dump = (
        "Cluster - 'lab'\nParent - 'root'\nAccount - 'top'\nParent - 'top'\nAccount - 'low'\nUser - 'ann'\n"
        "Parent - 'low'\nUser - 'bob'\n"
    )
    conf = NODES + "PartitionName=a Nodes=ALL AllowAccounts=top\nPartitionName=b Nodes=ALL DenyAccounts=top\n"
    newer, older = (
        imported(slurm__conf=conf, sacctmgr__dump=dump, **{"slurm-version__txt": f"slurm {version}\n"})
        for version in ("24.11.5", "22.05.8")
    )
    assert newer.spec["partitions"]["a"] == {"teams": ["top"]}
    assert verdict(newer, "DenyAccounts").why == "no team may use it; without teams the partition is open to all"
    assert older.spec["partitions"] == {"a": {}, "b": {"teams": ["low"]}}
    assert "those below it, which may not use the partition" in verdict(older, "AllowAccounts").why
