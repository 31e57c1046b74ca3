"""Teams and limits become sacctmgr commands, carried out here by a small sacctmgr that refuses what the real one
refuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.catalog.plans import load_catalogue
from headway.changes.account_changes import (
    account_changes,
    lock_changes,
    member_changes,
    usage_resets_due,
)
from headway.changes.desired_accounts import desired_accounts
from headway.clusterfile.load import resolve_cluster_file
from headway.domain.changeset import Disturbs
from headway.domain.cluster import Cluster
from headway.domain.jobs.job_qos import JobQos
from headway.domain.slurm.accounts import Accounts, Qos
from headway.domain.teams import GpuHourCap, Team, User, UserLimits
from headway.slurm.accounting.sacctmgr_commands import account_change_argv
from headway.slurm.accounting.sacctmgr_reader import parse_accounts
from headway.validation.yaml_parser import parse_yaml
from tests.support.clusters.builders import cluster
from tests.support.clusters.sacctmgr import Sacctmgr

RECORDED = Path(__file__).parents[2] / "recorded_slurm"


def lab(*teams: Team, departed_jobs: str = "cancel") -> Cluster:
    of: dict[str, list[str]] = {}
    for team in teams:
        for user in team.users:
            of.setdefault(user, []).append(team.name)
    people = tuple(User(name, (), tuple(names)) for name, names in of.items())
    return cluster(teams=teams, users=people, departed_jobs=departed_jobs)


def carry_out(target: Cluster, slurm: Sacctmgr) -> list[str]:
    done = []
    for change in account_changes(desired_accounts(target), slurm.seen()):
        slurm.run(account_change_argv(change.data))
        done.append(f"{change.kind} {change.what}")
    return done


VISION = Team("vision", ("alice", "bob"), 60, gpu_hours=GpuHourCap(Decimal(720), "month"), running_jobs=50)
SPEECH = Team("speech", ("carol", "alice"), 40, gpus=12)


@pytest.mark.parametrize("version", ["24.11", "22.05"])
def test_accounts_recorded_from_a_real_cluster_need_no_change(version: str) -> None:
    texts = [(RECORDED / version / f"accounts_{n}.txt").read_text() for n in ("associations", "users", "qos", "busy")]
    observed = parse_accounts(*texts)
    assert {("alice", "vision"), ("carol", "speech")} <= observed.busy
    spec = parse_yaml((RECORDED / "accounts.yaml").read_text())
    recorded, _ = resolve_cluster_file(spec, load_catalogue(), owner="admin")
    assert account_changes(desired_accounts(recorded), observed) == []


def test_limits_of_each_user_are_changed_and_removed_one_by_one() -> None:
    each = UserLimits(submitted_jobs=40, gpus=8, cpus=64)
    (qos,) = desired_accounts(lab(replace(SPEECH, per_user=each))).qos
    seen = replace(qos, limits={**qos.limits, "MaxTRESPerUser": "gres/gpu=8,cpu=64"})  # in the database's order
    assert account_changes(desired_accounts(lab(replace(SPEECH, per_user=each))), _accounts(seen)) == []
    (change,) = account_changes(desired_accounts(lab(SPEECH)), _accounts(seen))
    assert account_change_argv(change.data)[-2:] == ["MaxSubmitJobsPerUser=-1", "MaxTRESPerUser=cpu=-1,gres/gpu=-1"]


def test_limits_in_a_partition_are_a_qos() -> None:
    plain = lab(SPEECH)
    debug = replace(plain.partitions[0], name="debug", per_user=UserLimits(running_jobs=1, submitted_jobs=2, gpus=4))
    limited = replace(plain, partitions=(*plain.partitions, debug))
    slurm = Sacctmgr(Accounts())
    slurm.run(["sacctmgr", "-i", "add", "qos", debug.qos])  # before slurmctld read its name
    (change, *_) = account_changes(desired_accounts(limited), slurm.seen())
    assert account_change_argv(change.data)[2:] == [
        "modify", "qos", "where", "name=partition.debug", "set", "MaxJobsPerUser=1", "MaxSubmitJobsPerUser=2",
        "MaxTRESPerUser=gres/gpu=4", "Flags=NoDecay",
    ]  # fmt: skip
    assert change.why.startswith("limits of jobs in the partition change: MaxJobsPerUser=1")
    carry_out(limited, slurm)
    assert carry_out(limited, slurm) == []
    assert carry_out(plain, slurm) == ["account.qos partition.debug"]
    assert "partition.debug" not in slurm.qos


def test_recent_gpu_hours_limit_the_association_of_each_user() -> None:
    capped = replace(SPEECH, per_user=UserLimits(recent_gpu_hours=Decimal("12.5")))
    slurm = Sacctmgr(Accounts())
    carry_out(lab(SPEECH), slurm)
    changes = account_changes(desired_accounts(lab(capped)), slurm.seen())
    assert [account_change_argv(change.data)[3:] for change in changes] == [
        ["user", "where", f"name={user}", "account=speech", "set", "GrpTRESMins=gres/gpu=750"]
        for user in ("alice", "carol")
    ]
    assert changes[0].why == "limits in team speech: GrpTRESMins=gres/gpu=750"
    carry_out(lab(capped), slurm)
    assert carry_out(lab(capped), slurm) == []
    carry_out(lab(SPEECH), slurm)
    assert not any(slurm.limits.values())


def test_single_users_may_choose_more_qos_than_their_team() -> None:
    slurm = Sacctmgr(Accounts())
    file = replace(lab(SPEECH), qos=(JobQos("high", ("speech",)), JobQos("long", (), users=("alice",))))
    carry_out(file, slurm)
    assert {user: slurm.user_qos[user, "speech"] for user in SPEECH.users} == {
        "alice": ("high", "long", "speech"),
        "carol": (),
    }
    assert slurm.account_limits["speech"] == {"GrpTRES": "gres/gpu=12"}, "limits count the jobs of all QOS"
    (change,) = account_changes(desired_accounts(replace(file, qos=(file.qos[0], JobQos("long", ())))), slurm.seen())
    assert account_change_argv(change.data)[-2:] == ["set", "qos="]
    assert change.why == "may choose the QOS of the team in team speech"


def test_associations_in_one_partition_are_removed_once_their_jobs_have_ended() -> None:
    """The database of a site that was adopted has them."""
    wanted = desired_accounts(lab(SPEECH))
    seen = replace(wanted, of_partitions=(("alice", "speech", "gpu"), ("gone", "speech", "gpu")))
    change, other = account_changes(wanted, seen)
    assert account_change_argv(other.data)[5] == "name=gone"
    assert account_change_argv(change.data)[2:] == [
        "delete",
        "user",
        "where",
        "name=alice",
        "account=speech",
        "partition=gpu",
    ]
    assert account_changes(wanted, replace(seen, busy=frozenset({("alice", "speech")}))) == [other]
    (joins, *_) = account_changes(wanted, replace(seen, associations=wanted.associations[1:]))
    assert joins.why == "joins team speech"


def _accounts(qos: Qos) -> Accounts:
    return replace(desired_accounts(lab(SPEECH)), qos=(qos,))


names = st.sampled_from(["red", "green", "blue"])
people = st.lists(st.sampled_from(["alice", "bob", "carol"]), unique=True, max_size=3).map(tuple)
numbers = st.none() | st.integers(1, 99)
hours = st.none() | st.integers(1, 99).map(Decimal)
limits = st.builds(UserLimits, numbers, numbers, numbers, numbers, hours)
caps = st.none() | st.builds(GpuHourCap, st.integers(1, 999).map(Decimal), st.just("month"))
team = st.builds(Team, names, people, st.integers(1, 100), caps, numbers, numbers, numbers, per_user=limits)
flags = st.lists(st.sampled_from(["DenyOnLimit", "NoDecay"]), unique=True).map(lambda names: tuple(sorted(names)))
resources = st.dictionaries(st.sampled_from(["gpus", "cpus", "nodes"]), st.integers(1, 9))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    teams = draw(st.lists(team, unique_by=lambda t: t.name, min_size=1, max_size=3))
    known = [t.name for t in teams]
    order_of = draw(st.permutations(known))
    teams = [
        replace(
            one,
            parent=draw(st.sampled_from(["", *order_of[: order_of.index(one.name)]])),
            user_limits=draw(st.dictionaries(st.sampled_from(one.users), limits)) if one.users else {},
        )
        for one in teams
    ]
    order = draw(st.permutations(["high", "low", "urgent"]))[: draw(st.integers(0, 3))]
    qos = [
        JobQos(
            name,
            tuple(draw(st.lists(st.sampled_from(known), unique=True))),
            draw(st.integers(0, 3)),
            draw(st.sampled_from([Decimal(1), Decimal("0.5")])),
            draw(st.none() | st.integers(1, 9).map(lambda hours: hours * 3600)),
            draw(numbers),
            draw(numbers),
            draw(resources),
            draw(limits),
            draw(resources),
            tuple(draw(st.lists(st.sampled_from([*order[:place], *known]), unique=True))),
            draw(st.sampled_from(["requeue", "cancel"])),
            draw(st.integers(0, 200)),
            draw(flags),
            draw(people),
        )
        for place, name in enumerate(order)
    ]
    defaults = [
        replace(one, default_qos=draw(st.sampled_from(["", *(q.name for q in qos if one.name in q.teams)])))
        for one in teams
    ]
    return replace(lab(*defaults), qos=tuple(qos))


files = clusters()


@given(files, files)
def test_any_team_change_uses_valid_commands_and_converges(a: Cluster, b: Cluster) -> None:
    slurm = Sacctmgr(Accounts())
    for target in (a, b):
        carry_out(target, slurm)
        assert carry_out(target, slurm) == []
        assert replace(slurm.seen(), busy=frozenset()) == replace(desired_accounts(target), departed_jobs="cancel")


@given(
    files, files, st.sets(st.tuples(st.sampled_from(["alice", "bob", "carol"]), names)).map(frozenset), st.booleans()
)
def test_running_jobs_delay_the_removal_of_a_member(
    a: Cluster, b: Cluster, busy: frozenset[tuple[str, str]], cancel: bool
) -> None:
    slurm = Sacctmgr(Accounts())
    carry_out(a, slurm)
    slurm.busy = busy.intersection(slurm.members)
    b = replace(b, departed_jobs="cancel" if cancel else "finish")
    carry_out(b, slurm)
    wanted = {(m.user, m.account) for m in desired_accounts(b).associations}
    for member in set(slurm.members) - wanted:
        assert slurm.members[member], "somebody who left a team may not submit in it"
    if not cancel:
        assert carry_out(b, slurm) == [], "waits quietly while the jobs finish"
    slurm.busy = frozenset()
    carry_out(b, slurm)
    assert carry_out(b, slurm) == []
    assert set(slurm.members) == wanted


def test_departed_member_is_locked_and_jobs_are_cancelled_or_finish() -> None:
    slurm = Sacctmgr(Accounts())
    carry_out(lab(VISION, SPEECH), slurm)
    slurm.busy = frozenset({("bob", "vision")})
    left = replace(VISION, users=("alice",))
    found = account_changes(desired_accounts(lab(left, SPEECH)), slurm.seen())
    assert [(c.kind, c.disturbs) for c in found] == [
        ("account.lock", Disturbs.NOTHING),
        ("account.cancel", Disturbs.JOBS),
    ]
    assert account_change_argv(found[1].data) == ["scancel", "--user=bob", "--account=vision"]
    finish = account_changes(desired_accounts(lab(left, SPEECH, departed_jobs="finish")), slurm.seen())
    assert [c.kind for c in finish] == ["account.lock"]
    slurm.run(account_change_argv(found[0].data))
    assert account_changes(desired_accounts(lab(left, SPEECH)), slurm.seen()) == found[1:], (
        "an apply that died between the two is finished"
    )
    assert account_changes(desired_accounts(lab(left, SPEECH, departed_jobs="finish")), slurm.seen()) == []


def test_builtin_slurm_account_and_qos_are_ignored() -> None:
    observed = parse_accounts(
        "root|||1|normal|||||||\nroot|root||1|normal|||||||\n",
        "root|Administrator|root\n",
        "normal|||00:00:00|cluster|0|1.000000|||||||||\n",
    )
    assert observed == Accounts()


def test_raw_usage_is_reset_once_per_period_for_capped_teams() -> None:
    now = datetime(2026, 6, 1, 0, 0, 5, tzinfo=UTC)
    last = {"vision": datetime(2026, 5, 20, tzinfo=UTC), "speech": datetime(2026, 5, 20, tzinfo=UTC)}
    (due,) = usage_resets_due([VISION, SPEECH], last, now)
    assert account_change_argv(due.data) == [
        "sacctmgr",
        "-i",
        "modify",
        "qos",
        "where",
        "name=vision",
        "set",
        "RawUsage=0",
    ]
    assert usage_resets_due([VISION], {"vision": now}, now) == []
    assert usage_resets_due([VISION], {}, now) == [], "a team that is new begins with an empty account"


def test_limits_of_gpu_parts_change_one_by_one() -> None:
    """sacctmgr keeps the resources of a limit that a command does not name, so those that are gone are named too."""
    team = Team("vision", ("ann",), 1, gpus=16, gpu_parts={"3g.71gb": 2, "mps": 200})
    wanted = desired_accounts(lab(team))
    (qos,) = wanted.qos
    assert qos.limits == {"GrpTRES": "gres/gpu=16,gres/gpu:3g.71gb=2,gres/mps=200"}
    have = replace(qos, limits={"GrpTRES": "gres/gpu=16,gres/gpu:3g.71gb=4,gres/shard=8"})
    (change,) = account_changes(wanted, replace(wanted, qos=(have,)))
    assert account_change_argv(change.data)[-1] == "GrpTRES=gres/gpu:3g.71gb=2,gres/mps=200,gres/shard=-1"
    other_order = replace(qos, limits={"GrpTRES": "gres/mps=200,gres/gpu=16,gres/gpu:3g.71gb=2"})
    assert account_changes(wanted, replace(wanted, qos=(other_order,))) == []


def test_locked_user_may_submit_nowhere_and_an_unlocked_one_as_before() -> None:
    goal = desired_accounts(lab(Team("red", ("ann", "bob"), 1), Team("blue", ("ann",), 1)))
    slurm = Sacctmgr(goal)
    for change in lock_changes("ann", slurm.seen()):
        slurm.run(account_change_argv(change.data))
    assert {pair for pair, locked in slurm.members.items() if locked} == {("ann", "red"), ("ann", "blue")}
    assert lock_changes("ann", slurm.seen()) == []
    for change in member_changes("ann", goal, slurm.seen()):
        slurm.run(account_change_argv(change.data))
    assert slurm.seen().associations == goal.associations
    assert member_changes("ann", goal, slurm.seen()) == []


def test_unlocked_user_joins_the_teams_that_accounting_has() -> None:
    """An apply between lock and unlock has removed the user; the team blue comes with the next apply."""
    before = desired_accounts(lab(Team("red", ("bob",), 1)))
    goal = desired_accounts(lab(Team("red", ("ann", "bob"), 1), Team("blue", ("ann",), 1)))
    slurm = Sacctmgr(before)
    for change in member_changes("ann", goal, slurm.seen()):
        slurm.run(account_change_argv(change.data))
    assert set(slurm.members) == {("ann", "red"), ("bob", "red")}


def test_qos_that_jobs_choose_is_added_with_its_limits_and_offered_to_teams() -> None:
    high = JobQos(
        "high", ("speech",), 100, Decimal(2), 86400, per_job={"gpus": 8, "nodes": 2}, preempts=("low", "vision"),
        preempt_mode="cancel", grace_s=60, flags=("DenyOnLimit",),
    )  # fmt: skip
    plain, slurm = lab(replace(SPEECH, per_user=UserLimits(gpus=4)), VISION), Sacctmgr(Accounts())
    carry_out(plain, slurm)
    chosen = replace(plain, qos=(high, JobQos("low", ("speech",))))
    changes = account_changes(desired_accounts(chosen), slurm.seen())
    assert account_change_argv(changes[0].data)[2:] == [
        "add", "qos", "high", "set", "Flags=DenyOnLimit", "GraceTime=60", "MaxTRESPerJob=gres/gpu=8,node=2", "MaxWall=1440",
        "PreemptMode=cancel", "Priority=100", "UsageFactor=2.000000",
    ]  # fmt: skip
    carry_out(chosen, slurm)
    assert slurm.account_qos == {"speech": ("speech", "high", "low"), "vision": ("vision",)}
    assert slurm.qos["high"][3] == ("low", "vision")
    assert carry_out(chosen, slurm) == []
    carry_out(plain, slurm)
    assert set(slurm.qos) == {"speech", "vision"}


def test_limits_of_a_team_that_may_choose_hold_in_each_qos() -> None:
    """Slurm counts the jobs of a QOS only; those of an association are all jobs of the team or user."""
    team = replace(SPEECH, per_user=UserLimits(running_jobs=2, gpus=4, recent_gpu_hours=Decimal(3)), default_qos="low")
    found = desired_accounts(replace(lab(team), qos=(JobQos("low", ("speech",)),)))
    assert found.accounts[0].limits == {"GrpTRES": "gres/gpu=12"}
    assert {a.user: a.limits for a in found.associations}["carol"] == {
        "GrpTRESMins": "gres/gpu=180", "GrpJobs": "2", "GrpTRES": "gres/gpu=4",
    }  # fmt: skip
    assert {q.name: q.limits for q in found.qos} == {"low": {}, "speech": {}}
    assert found.account_qos == {"speech": ("low", "speech")}


def test_lists_of_preempted_qos_are_turned_around_without_a_loop() -> None:
    plain, slurm = lab(SPEECH), Sacctmgr(Accounts())
    a, b = JobQos("a", ("speech",)), JobQos("b", ("speech",))
    carry_out(replace(plain, qos=(replace(a, preempts=("b",)), b)), slurm)
    carry_out(replace(plain, qos=(a, replace(b, preempts=("a",)))), slurm)
    assert [slurm.qos[name][3] for name in ("a", "b")] == [(), ("a",)]


def test_memory_is_compared_as_sacctmgr_prints_it() -> None:
    def changed(there: str, wanted: str) -> list[str]:
        seen, want = Accounts(qos=(Qos("a", {"GrpTRES": there}),)), Accounts(qos=(Qos("a", {"GrpTRES": wanted}),))
        return [word for change in account_changes(want, seen) for word in change.data["set"]]

    assert changed("cpu=4,mem=1.50T", "cpu=4,mem=1572864M") == []
    assert changed("mem=3T", f"mem={3 * 1024**2}M") == []
    assert changed("mem=1.50T", "mem=1572999M") == []  # sacctmgr shows no such difference
    assert changed("mem=1.50T", "mem=1024M") == ["GrpTRES=mem=1024M"]
    assert changed("mem=1.50T", "") == ["GrpTRES=mem=-1"]
