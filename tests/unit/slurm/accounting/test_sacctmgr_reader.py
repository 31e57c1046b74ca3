"""Accounts are read from slurmdbd; jobs known only to slurmctld count too, and slurmctld may be down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.errors import CommandFailed
from headway.slurm.accounting import sacctmgr_reader
from headway.transport.process import CommandResult
from tests.support.clusters.builders import machine

RECORDED = Path(__file__).parents[3] / "recorded_slurm" / "24.11"
SQUEUE = ("squeue", "-h", "-o", "%u|%a")


class Head:
    """The recorded answers, and what squeue says; a failing question is named."""

    def __init__(self, queue: str = "", fails: str = "") -> None:
        self.answers = {
            tuple(a): (RECORDED / f"accounts_{n}.txt").read_text() for n, a in sacctmgr_reader.accounts_argv().items()
        }
        self.answers[SQUEUE] = queue
        self.fails = fails

    async def remote(self, machine: Any, argv: Sequence[str], **_: Any) -> CommandResult:
        text = self.answers[tuple(argv)]
        if argv[0] == self.fails:
            raise CommandFailed(argv, 1, "away", where=machine.name)
        return CommandResult(tuple(argv), 0, text, "", 0.0)


async def test_busy_users_include_jobs_known_only_to_squeue() -> None:
    found = await sacctmgr_reader.read_accounts(Head("bob|vision\nbob|vision\n"), machine("lab-head"))
    assert found.busy == {("alice", "vision"), ("carol", "speech"), ("bob", "vision")}
    assert found.operators == ("headway",)
    qos = {q.name: q for q in found.qos}
    assert qos["small"].limits == {"GrpJobs": "9", "GrpTRESMins": "gres/gpu=43200", "MaxSubmitJobsPerUser": "30"}
    assert (qos["high"].preempts, qos["high"].limits["MaxWall"]) == (("small", "standby"), "1800")  # minutes
    assert (qos["standby"].settings["GraceTime"], qos["standby"].settings["PreemptMode"]) == ("90", "cancel")
    assert {account.name: account.parent for account in found.accounts}["vision"] == "science"
    assert next(one.limits for one in found.associations if one.user == "bob")["GrpTRESMins"] == "gres/gpu=600"
    assert found.account_qos["speech"] == ("standby", "high", "speech")


async def test_accounts_are_read_without_slurmctld_but_not_without_slurmdbd() -> None:
    found = await sacctmgr_reader.read_accounts(Head(fails="squeue"), machine("lab-head"))
    assert found.busy == {("alice", "vision"), ("carol", "speech")}
    with pytest.raises(CommandFailed):
        await sacctmgr_reader.read_accounts(Head(fails="sacctmgr"), machine("lab-head"))


def test_list_of_a_user_is_read_where_it_is_not_that_of_the_account() -> None:
    rows = "ml||root|1|high,ml|ml||||||\nml|ann||1|high,ml|ml||||||\nml|bob||1|high,long,ml|ml||||||\n"
    found = sacctmgr_reader.parse_accounts(rows, "", "")
    assert {one.user: one.qos for one in found.associations} == {"ann": (), "bob": ("high", "long", "ml")}


def test_association_in_one_partition_is_no_membership() -> None:
    rows = "ml||root|1|ml|ml||||||\nml|ann||1|ml|ml|3|gpu||||\nml|bob||1|ml|ml||||||\nml|bob||1|ml|ml||gpu||||\n"
    found = sacctmgr_reader.parse_accounts(rows, "", "")
    assert [one.user for one in found.associations] == ["bob"]
    assert found.of_partitions == (("ann", "ml", "gpu"), ("bob", "ml", "gpu"))
