"""QOS that jobs choose become those of the cluster file; each key of them has a verdict."""

from __future__ import annotations

from headway.slurm_import.verdicts import Kind
from tests.support.slurm_sites import NODES, imported, verdict
from tests.unit.slurm_import.accounting.test_teams import TREE

QOS = (
    "Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageThres|UsageFactor|GrpTRES|GrpTRESMins|GrpJobs|"
    "GrpSubmit|MaxTRES|MaxWall|MaxTRESPU|MaxJobsPU|MaxSubmitPU|MaxTRESPA|MinTRES\n"
    "normal|0|00:00:00|||cluster|||1.000000|||||||||||\n"
    "high|100|00:00:00|standby,normal|00:01:00|cluster|DenyOnLimit,EnforceUsageThreshold||2.000000|cpu=64,gres/gpu=16,mem=1T,license/matlab=2||"
    "40|50|cpu=32,gres/gpu=4,node=2|2-00:00:00|gres/gpu=8|10|20|gres/gpu=9|cpu=4\n"
    "standby|0|00:00:30|||cancel|||0.250000|||||||||||\n"
    "unused|5|00:00:00|||cluster|||1.000000|||||||||||\n"
)


def test_qos_that_jobs_choose_are_those_of_the_file() -> None:
    conf = NODES + "PreemptType=preempt/qos\nPreemptMode=REQUEUE\n"
    site = imported(slurm__conf=conf, sacctmgr__dump=TREE, qos__txt=QOS)
    assert site.faults == []
    assert site.spec["qos"] == {
        "high": {
            "teams": ["physics", "it"], "priority": 100, "usage_factor": 2.0, "max_time": "2-00:00:00",
            "preempts": ["bio", "physics", "science", "standby"], "flags": ["DenyOnLimit"],
            "limits": {
                "running_jobs": 40, "submitted_jobs": 50, "cpus": 64, "gpus": 16, "memory": "1 TiB",
                "per_user": {"gpus": 8, "running_jobs": 10, "submitted_jobs": 20},
                "per_job": {"cpus": 32, "gpus": 4, "nodes": 2},
            },
        },
        "standby": {"teams": ["science"], "grace_time": 30, "preempt_mode": "cancel", "usage_factor": 0.25},
    }  # fmt: skip
    assert site.spec["teams"]["it"]["default_qos"] == "high"
    for key, value, why in (
        ("GrpTRES", "license/matlab=2", "a QOS has no limit on license/matlab=2"),
        ("MaxTRESPA", "", "a QOS has no limits of each account"),
        ("MinTRES", "", "a QOS has no least size of a job"),
        ("Flags", "DenyOnLimit", "a cluster file has no flag EnforceUsageThreshold"),
        ("PreemptExemptTime", "", "a QOS has no time before preemption"),
        ("Name", "unused", "no account may choose it"),
        ("QOS", "extra", "extra: it was not read"),
        ("DefaultQOS", "standby", "a default QOS is that of a team"),
    ):
        found = verdict(site, key, value=value)
        assert (found.kind, why in found.why, bool(found.instead)) == (Kind.NOT_CARRIED, True, True), (key, found)
    assert verdict(site, "QOS", record="Account=physics").place == "qos.high.teams, qos.standby.teams"
    assert verdict(site, "QOS", record="User=bob").kind is Kind.SAME
    assert verdict(site, "DefaultQOS", record="Account=it").place == "teams.it.default_qos"


def test_qos_does_not_preempt_where_the_site_does_not() -> None:
    site = imported(sacctmgr__dump=TREE, qos__txt=QOS)
    assert "preempts" not in site.spec["qos"]["high"]
    assert verdict(site, "Preempt", value="standby").why == "the site does not preempt by QOS"
    assert verdict(site, "GraceTime", value="00:00:30").why == "nothing preempts it"


def test_limits_of_normal_are_a_qos_that_jobs_have_by_default() -> None:
    table = "Name|Priority|Flags|MaxWall|MaxTRESPU\nnormal|0||04:00:00|cpu=100\n"
    dump = "Cluster - 'lab'\nParent - 'root'\nAccount - 'ml'\nAccount - 'nlp'\nParent - 'ml'\nUser - 'ann'\n"
    site = imported(sacctmgr__dump=dump, qos__txt=table)
    assert site.spec["qos"] == {"standard": {"max_time": "0-04:00:00", "limits": {"per_user": {"cpus": 100}}}}
    assert {team["default_qos"] for team in site.spec["teams"].values()} == {"standard"}
    assert site.faults == []


def test_qos_with_the_name_of_a_team_has_another_name() -> None:
    table = "Name|Priority|Flags|GrpJobs\nml|50||9\n"
    dump = "Cluster - 'lab'\nParent - 'root'\nAccount - 'ml':QOS='ml'\nParent - 'ml'\nUser - 'ann'\n"
    site = imported(sacctmgr__dump=dump, qos__txt=table)
    assert (
        site.spec["qos"] == {"ml-qos": {"teams": ["ml"], "priority": 50, "limits": {"running_jobs": 9}}}
        or site.spec["qos"]
    )
    assert site.spec["teams"]["ml"]["default_qos"] == next(iter(site.spec["qos"]))
    assert site.faults == []


def test_list_of_an_account_without_users_is_that_of_those_below() -> None:
    dump = (
        "Cluster - 'lab'\nParent - 'root'\nAccount - 'top':QOS='normal,high'\nParent - 'top'\nAccount - 'low':QOS='normal'\n"
        "Account - 'up'\nParent - 'low'\nUser - 'bob'\nParent - 'up'\nUser - 'ann'\n"
    )
    site = imported(sacctmgr__dump=dump, qos__txt="Name|Priority|Flags|GrpJobs\nhigh|9||\n")
    assert site.spec["qos"] == {"high": {"teams": ["up"], "priority": 9}}
    assert verdict(site, "QOS", value="high").place == "qos.high.teams"


def test_qos_that_preempt_each_other_do_not() -> None:
    table = "Name|Priority|Preempt|Flags|GrpJobs\na|1|b||\nb|2|a,b||\n"
    dump = "Cluster - 'lab':QOS='a,b,normal'\nParent - 'root'\nAccount - 'ml'\nParent - 'ml'\nUser - 'ann'\n"
    conf = NODES + "PreemptType=preempt/qos\nPreemptMode=CANCEL\n"
    site = imported(slurm__conf=conf, sacctmgr__dump=dump, qos__txt=table)
    assert site.spec["qos"] == {
        "a": {"priority": 1, "preempts": ["b"]},
        "b": {"priority": 2, "preempt_mode": "cancel"},
    }
    assert (site.faults, verdict(site, "Preempt", value="a,b").kind) == ([], Kind.NOT_CARRIED)


def test_qos_of_one_account_gives_the_team_its_limits() -> None:
    site = imported(
        sacctmgr__dump="Cluster - 'lab':Fairshare=1\nParent - 'root'\nAccount - 'ml':DefaultQOS='ml':QOS='ml'\n"
        "Parent - 'ml'\nUser - 'ann'\n",
        qos__txt="Name|Priority|Flags|GrpTRES|GrpJobs|MaxJobsPU\nml|0||gres/gpu=16,mem=1T|5|2\n",
    )
    assert site.spec["teams"]["ml"]["limits"] == {
        "gpus": 16, "memory": "1 TiB", "running_jobs": 5, "per_user": {"running_jobs": 2},
    }  # fmt: skip
    assert verdict(site, "GrpTRES").place == "teams.ml.limits.gpus, teams.ml.limits.memory"
    assert verdict(site, "GrpJobs").kind is Kind.CARRIED


def test_qos_of_an_account_that_says_nothing_is_the_team_s_own() -> None:
    """Many sites have a QOS for each account; Headway makes one for each team."""
    table = (
        "Name|Priority|GraceTime|Flags|GrpJobs|GrpTRESMins\nhigh|9|00:00:00||9|\ntop|0|00:02:00|NoDecay||\nlow|0|||||\n"
        "one|0|||7|gres/gpu=600\n"
    )
    dump = (
        "Cluster - 'lab'\nParent - 'root'\nAccount - 'top':DefaultQOS='top':QOS='top,high'\n"
        "Account - 'one':DefaultQOS='one':QOS='high,one'\nParent - 'top'\n"
        "Account - 'low':DefaultQOS='high':QOS='low,high'\nUser - 'ann'\nParent - 'low'\nUser - 'bob'\n"
        "Parent - 'one'\nUser - 'eve'\n"
    )
    site = imported(sacctmgr__dump=dump, qos__txt=table)
    assert {team: fields.get("default_qos") for team, fields in site.spec["teams"].items()} == {
        "top": None, "low": "high", "one": "one-qos",
    }  # fmt: skip
    # of its jobs of that QOS only: as a limit of the team it would count those of high too
    assert site.spec["qos"] == {
        "high": {"priority": 9, "limits": {"running_jobs": 9}},
        "one-qos": {"teams": ["one"], "limits": {"running_jobs": 7}},
    }
    assert verdict(site, "Name", value="low").place == "teams.low"
    assert verdict(site, "QOS", record="Account=low").place == "qos.high.teams"
    assert site.faults == []


def test_limits_of_a_partition_s_qos_are_those_of_the_partition() -> None:
    table = "Name|Priority|Flags|GrpTRES|GrpJobs|MaxTRES|MaxJobsPU|MaxWall\n"
    table += "half|3|DenyOnLimit|cpu=32,mem=100G|7|node=2|4|1-00:00:00\n"
    site = imported(slurm__conf=NODES + "PartitionName=short Nodes=ALL QOS=half\n", qos__txt=table)
    part = site.spec["partitions"]["short"]
    assert part["limits"] == {"cpus": 32, "memory": "100 GiB", "running_jobs": 7, "per_job": {"nodes": 2}}
    assert part["per_user"] == {"running_jobs": 4}
    assert site.faults == []
    assert verdict(site, "GrpTRES").place == "partitions.short.limits.cpus, partitions.short.limits.memory"
    assert verdict(site, "MaxWall").instead == "give the partition max_time"
    assert "NoDecay only" in verdict(site, "Flags").why


USERS = """Cluster - 'lab'
Parent - 'root'
Account - 'ml'
Account - 'bio':QOS='normal,long'
Parent - 'ml'
User - 'ann':QOS='normal,long'
User - 'bob':QOS='+long,+debug'
User - 'eve':QOS='+long'
User - 'dan':QOS='debug'
User - 'fay'
Parent - 'bio'
User - 'bob':QOS='+debug'
User - 'eve':QOS='normal'
User - 'gus':QOS='normal'
"""


def test_qos_of_single_users_are_theirs_in_the_file() -> None:
    table = "Name|Priority|Flags|MaxJobsPU\nnormal|0||\nlong|5||2\ndebug|9||\nidle|1||\n"
    site = imported(sacctmgr__dump=USERS, qos__txt=table)
    assert site.faults == []
    assert site.spec["qos"] == {
        "long": {"teams": ["bio"], "users": ["ann", "bob"], "priority": 5, "limits": {"per_user": {"running_jobs": 2}}},
        "debug": {"users": ["bob", "dan"], "priority": 9},
    }
    for user, account, why in (
        ("eve", "ml", "in some of their teams only"),
        ("gus", "bio", "the team's other QOS, long, stay allowed"),
        ("dan", "ml", "the team's own QOS stays allowed"),
    ):
        found = verdict(site, "QOS", record=f"Account={account} User={user}")
        assert (found.kind, why in found.why, bool(found.instead)) == (Kind.NOT_CARRIED, True, True), found
    assert verdict(site, "QOS", record="User=ann").place == "qos.long.users"
    assert verdict(site, "QOS", record="Account=ml User=bob").place == "qos.debug.users, qos.long.users"
    assert verdict(site, "QOS", record="Account=bio User=bob").place == "qos.debug.users"
    assert verdict(site, "Name", value="idle").why == "no account may choose it"


def test_normal_of_a_user_whose_account_does_not_have_it_is_not_carried() -> None:
    dump = (
        "Cluster - 'lab'\nParent - 'root'\nAccount - 'bio':QOS='long'\nParent - 'bio'\nUser - 'ann':QOS='+normal'\n"
        "User - 'bob':QOS='+normal,+high'\n"
    )
    table = "Name|Priority|Flags|MaxJobsPU\nnormal|0||\nlong|5||2\nhigh|9||\n"
    site = imported(sacctmgr__dump=dump, qos__txt=table)
    assert site.spec["teams"]["bio"]["own_qos"] is False
    for user in ("ann", "bob"):
        found = verdict(site, "QOS", record=f"User={user}")
        assert (found.kind, found.place) == (Kind.NOT_CARRIED, "")
        assert found.why == "normal: the team has no QOS of its own, so jobs without --qos have the limits of long"
        assert found.instead.startswith("leave out teams.bio.own_qos")
    assert site.spec["qos"]["high"]["users"] == ["bob"]


def test_normal_of_a_user_in_a_team_with_the_limits_of_a_qos_is_not_carried() -> None:
    dump = "Cluster - 'lab'\nParent - 'root'\nAccount - 'ml':QOS='ml'\nParent - 'ml'\nUser - 'ann':QOS='+normal'\n"
    site = imported(sacctmgr__dump=dump, qos__txt="Name|Priority|Flags|GrpJobs\nnormal|0||\nml|0||9\n")
    found = verdict(site, "QOS", record="User=ann")
    assert (found.kind, found.why) == (Kind.NOT_CARRIED, "normal: jobs of the team have the limits of its own QOS, ml")


def test_users_of_a_team_have_a_qos_that_teams_below_it_have_not() -> None:
    dump = (
        "Cluster - 'lab'\nParent - 'root'\nAccount - 'top':QOS='normal,high'\nParent - 'top'\nAccount - 'low':QOS='normal'\n"
        "User - 'ann'\nParent - 'low'\nUser - 'bob'\n"
    )
    site = imported(sacctmgr__dump=dump, qos__txt="Name|Priority|Flags|GrpJobs\nhigh|9||\n")
    assert site.spec["qos"] == {"high": {"users": ["ann"], "priority": 9}}
    assert verdict(site, "QOS", record="Account=top").place == "qos.high.users"


def test_limits_of_an_account_s_qos_are_not_those_of_a_team_whose_users_may_choose_more() -> None:
    dump = "Cluster - 'lab'\nParent - 'root'\nAccount - 'ml':QOS='ml'\nParent - 'ml'\nUser - 'ann'\nUser - 'bob':QOS='ml,high'\n"
    table = "Name|Priority|Flags|GrpJobs\nml|0||9\nhigh|5||\n"
    site = imported(sacctmgr__dump=dump, qos__txt=table)
    assert site.spec["qos"] == {
        "ml-qos": {"limits": {"running_jobs": 9}},
        "high": {"users": ["bob"], "priority": 5},
    }
    assert site.spec["teams"]["ml"] == {"users": ["ann", "bob"], "share": 1, "default_qos": "ml-qos", "own_qos": False}
