"""What is said to Slurm, word by word, against the answers that a real scontrol gave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.errors import CommandFailed
from headway.slurm import commands
from headway.transport.process import Ran
from tests.support.builders import machine

HEAD = machine("lab-head")
SHOW = ("scontrol", "--oneliner", "show", "reservation", "headway_spares")
HELD = (Path(__file__).parents[2] / "slurm" / "24.11" / "reservation.txt").read_text()
NONE = (1, "", "Reservation headway_spares not found")


class Scontrol:
    """Answers registered argv only; `said` holds the rest of them in order."""

    def __init__(self, answers: dict[Sequence[str], tuple[int, str, str]]) -> None:
        self.answers = answers
        self.said: list[tuple[str, ...]] = []

    async def remote(self, machine: Any, argv: Sequence[str], *, check: bool = True, **_: Any) -> Ran:
        code, out, err = self.answers[tuple(argv)]
        if tuple(argv) != SHOW:
            self.said.append(tuple(argv))
        if check and code:
            raise CommandFailed(argv, code, err, where=machine.name)
        return Ran(tuple(argv), code, out, err, 0.0)


OK = (0, "", "")


async def test_the_reservation_is_made_updated_and_removed_as_needed() -> None:
    name = "ReservationName=headway_spares"
    # An end of its own: Slurm takes "infinite" for one year, and the spares would be ordinary nodes from then on.
    create = ("scontrol", "create", "reservation", name, "Nodes=lab-1-[3-4]", "EndTime=2100-01-01",
              "Flags=IGNORE_JOBS,OVERLAP", "Users=root", "StartTime=now")  # fmt: skip
    slurm = Scontrol({SHOW: NONE, create: OK})
    await commands.reserve(slurm, HEAD, ["lab-1-3", "lab-1-4"])
    assert slurm.said == [create]

    # One that was made without OVERLAP has it from then on: somebody's own reservation may name any node.
    update = ("scontrol", "update", "reservation", name, "Nodes=lab-1-4", "EndTime=2100-01-01",
              "Flags=IGNORE_JOBS,OVERLAP")  # fmt: skip
    slurm = Scontrol({SHOW: (0, HELD, ""), update: OK})
    await commands.reserve(slurm, HEAD, ["lab-1-4"])
    assert slurm.said == [update]

    delete = ("scontrol", "delete", name)
    slurm = Scontrol({SHOW: (0, HELD, ""), delete: OK})
    await commands.reserve(slurm, HEAD, [])
    assert slurm.said == [delete]


async def test_a_reservation_that_a_job_names_stays_until_none_does() -> None:
    delete = ("scontrol", "delete", "ReservationName=headway_spares")
    used = (1, "", "Error deleting the reservation headway_spares: Requested reservation is in use")
    slurm = Scontrol({SHOW: (0, HELD, ""), delete: used})
    await commands.reserve(slurm, HEAD, [])
    assert slurm.said == [delete]
    with pytest.raises(CommandFailed):
        await commands.reserve(Scontrol({SHOW: (0, HELD, ""), delete: (1, "", "Access/permission denied")}), HEAD, [])


async def test_nodes_that_fail_too_often_are_everybody_s_who_asks_for_them() -> None:
    show = (*SHOW[:-1], "headway_lemons")
    create = ("scontrol", "create", "reservation", "ReservationName=headway_lemons", "Nodes=lab-1-2",
              "EndTime=2100-01-01", "Flags=IGNORE_JOBS,OVERLAP", "Accounts=root", "StartTime=now")  # fmt: skip
    slurm = Scontrol({show: (1, "", "Reservation headway_lemons not found"), create: OK})
    await commands.reserve(slurm, HEAD, ["lab-1-2"], "headway_lemons")
    assert slurm.said == [show, create]


async def test_nothing_is_said_when_it_is_so_already() -> None:
    slurm = Scontrol({SHOW: (0, HELD, "")})
    await commands.reserve(slurm, HEAD, ["lab-1-2"])
    assert slurm.said == []
    slurm = Scontrol({SHOW: NONE})
    await commands.reserve(slurm, HEAD, [])
    assert slurm.said == []


SAID = "[root@2026-01-01T00:00:00]"


@pytest.mark.parametrize(
    "behind",
    [
        "",
        " Comment=PSU swapped",
        " Extra={rack: 7}",
        " InstanceId=i-1 InstanceType=big",
        " ReservationName=course",
        " Comment=see [1] and [bob@home] Extra=x InstanceId=i-1 ReservationName=course",
    ],
)
@pytest.mark.parametrize("reason", ["bob: disk swap", "bob: [R12] slot [3]", "ask [carl@example.org]", "a [x] b"])
async def test_what_stands_behind_a_reason_is_none_of_it(reason: str, behind: str) -> None:
    show = ("scontrol", "--oneliner", "show", "node", "lab-1-2")
    line = f"NodeName=lab-1-2 Arch=x86_64 State=IDLE+DRAIN ThreadsPerCore=1 Reason={reason} {SAID}{behind}\n"
    states, found = await commands.node_now(Scontrol({show: (0, line, "")}), HEAD, "lab-1-2")
    assert (states, found) == ({"IDLE", "DRAIN"}, reason)


async def test_an_unreachable_controller_is_not_taken_for_no_reservation() -> None:
    slurm = Scontrol({SHOW: (1, "", "slurm_load_reservations error: Unable to contact slurm controller")})
    with pytest.raises(CommandFailed):
        await commands.reserved(slurm, HEAD)


async def test_a_job_that_has_started_meanwhile_needs_no_nudge() -> None:
    now = ("scontrol", "update", "JobId=36_1", "StartTime=now")
    named = {_named(36): (0, "36 36_1\n", "")}
    await commands.start_now(Scontrol({**named, now: (1, "", "36_1: Job is no longer pending execution")}), HEAD, 36)


async def test_a_reason_stays_one_word_of_one_line() -> None:
    down = ("scontrol", "update", "NodeName=lab-1-1", "State=DOWN", "Reason=gpu 3 lost; rm -rf /")
    slurm = Scontrol({down: OK})
    await commands.node_down(slurm, HEAD, "lab-1-1", "gpu 3\nlost; rm -rf /")
    assert slurm.said == [down]


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        ("IDLE+DRAIN Reason=ours [root@2026-01-01T00:00:00]", ""),
        ("DOWN Reason=bob: a fan [root@2026-01-01T00:00:00]", "bob: a fan"),
        ("IDLE Reason=bob: a fan [root@2026-01-01T00:00:00]", ""),
    ],
)
async def test_a_node_is_returned_only_where_it_is_still_out_for_what_we_said(now: str, kept: str) -> None:
    show = ("scontrol", "--oneliner", "show", "node", "lab-1-1")
    resume = ("scontrol", "update", "NodeName=lab-1-1", "State=RESUME")
    slurm = Scontrol({show: (0, f"NodeName=lab-1-1 State={now}\n", ""), resume: OK})
    assert await commands.return_own(slurm, HEAD, "lab-1-1", lambda reason: reason == "ours") == kept
    assert slurm.said == ([show] if kept else [show, resume])


async def test_resuming_a_node_in_service_is_no_error_and_other_errors_are() -> None:
    resume = ("scontrol", "update", "NodeName=lab-1-1", "State=RESUME")
    await commands.node_resume(
        Scontrol({resume: (1, "", "slurm_update error: Invalid node state specified")}), HEAD, "lab-1-1"
    )
    with pytest.raises(CommandFailed, match="Invalid node name"):
        await commands.node_resume(Scontrol({resume: (1, "", "Invalid node name specified")}), HEAD, "lab-1-1")


class Squeue:
    """Jobs with their state (a base, and flags of which one shows) on nodes, filtered as squeue does: a base word names jobs
    without a flag alone, a flag's word all that have it; jobs of hidden partitions show with --all."""

    FLAGS = frozenset({"COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "REQUEUED"})

    def __init__(self, *jobs: tuple[int, str, str]) -> None:
        self.jobs = jobs

    async def remote(self, _: Any, argv: Sequence[str], **__: Any) -> Ran:
        assert argv[0] == "squeue"
        options = dict(word.partition("=")[::2] for word in argv[1:])
        asked = set(options["--states"].split(","))
        assert "--all" in options
        where = options.get("--nodelist", "")
        form = options["--format"]
        out = "".join(
            form.replace("%A", str(job)).replace("%N", node) + "\n"
            for job, state, node in self.jobs
            if asked & (set(state.split("|")) & self.FLAGS or {state}) and where in ("", node)
        )
        return Ran(tuple(argv), 0, out, "", 0.0)


HOLDING = ("RUNNING", "SUSPENDED", "RUNNING|CONFIGURING", "RUNNING|STOPPED", "RUNNING|RESIZING", "RUNNING|SIGNALING",
           "COMPLETED|STAGE_OUT", "COMPLETED|COMPLETING")  # fmt: skip


@pytest.mark.parametrize("state", HOLDING)
async def test_a_node_is_busy_as_long_as_a_job_holds_something_of_it(state: str) -> None:
    slurm = Squeue((7, state, "lab-1-2"), (8, "PENDING", ""), (9, "COMPLETED", "lab-1-3"))
    assert await commands.busy_nodes(slurm, HEAD) == {"lab-1-2": (7,)}
    assert await commands.jobs_on(slurm, HEAD, "lab-1-2") == (7,)
    assert await commands.jobs_on(slurm, HEAD, "lab-1-3") == ()


async def test_a_job_that_is_ending_can_be_left_out() -> None:
    slurm = Squeue((7, "COMPLETED|COMPLETING", "lab-1-2"), (8, "RUNNING|STOPPED", "lab-1-2"))
    assert await commands.jobs_on(slurm, HEAD, "lab-1-2", ending=False) == (8,)


@pytest.mark.parametrize(
    ("words", "serves"),
    [
        ("idle mixed allocated completing reserved planned maint mixed$ allocated$", True),
        ("down drained draining fail unknown inval future down* idle* maint* idle~ mixed# idle% mixed@ reboot^", False),
        ("down$ drained$ draining$", False),
    ],
)
def test_a_node_under_maintenance_serves_as_it_did(words: str, serves: bool) -> None:
    assert {word: commands.serves(word) for word in words.split()} == dict.fromkeys(words.split(), serves)


async def test_ping_reads_what_scontrol_says() -> None:
    argv = ("scontrol", "ping")
    assert await commands.ping(Scontrol({argv: (0, "Slurmctld(primary) at lab-head is UP\n", "")}), HEAD)
    assert not await commands.ping(Scontrol({argv: (1, "Slurmctld(primary) at lab-head is DOWN\n", "")}), HEAD)


async def test_a_task_that_has_its_arrays_number_is_told_from_the_others() -> None:
    show = ("scontrol", "--oneliner", "show", "job", "70")
    shown = "".join(
        f"JobId={job} ArrayJobId=70 ArrayTaskId={task} JobName=x Priority=1 JobState={word} Reason=None\n"
        for job, task, word in ((71, 0, "COMPLETED"), (70, 1, "RUNNING"))
    )
    assert await commands.job_word(Scontrol({show: (0, shown, "")}), HEAD, 70) == "RUNNING"
    assert await commands.job_word(Scontrol({show: (1, "", "Invalid job id specified")}), HEAD, 70) == ""


def _named(job: int) -> tuple[str, ...]:
    return ("squeue", "--all", "--noheader", f"--jobs={job}", "--states=all", "--format=%A %i")


TASKS = "2 1_0\n3 1_1\n1 1_2\n"  # as squeue shows an array of three that run: its own number is the last one's


async def test_what_is_done_to_the_task_that_has_the_array_s_number_is_done_to_no_other() -> None:
    requeue, cancel = ("scontrol", "requeue", "1_2"), ("scancel", "1_2")
    slurm = Scontrol({_named(1): (0, TASKS, ""), requeue: OK, cancel: OK})
    await commands.requeue(slurm, HEAD, 1)
    await commands.cancel(slurm, HEAD, 1)
    assert slurm.said == [_named(1), requeue, _named(1), cancel]


async def test_a_job_that_is_no_task_keeps_its_number_and_without_an_answer_nothing_is_done() -> None:
    rest = "1 1_[5-9]\n"  # those of an array that still wait together
    for said in ("1 1\n", "1 1+0\n", rest):
        slurm = Scontrol({_named(1): (0, said, ""), ("scontrol", "requeue", "1"): OK})
        await commands.requeue(slurm, HEAD, 1)
        assert slurm.said[-1] == ("scontrol", "requeue", "1")
    slurm = Scontrol({_named(1): (1, "", "Unable to contact slurm controller")})
    with pytest.raises(CommandFailed):
        await commands.requeue(slurm, HEAD, 1)


async def test_a_part_of_a_heterogeneous_job_goes_with_the_whole_of_it() -> None:
    slurm = Scontrol({_named(8): (0, "7 7+0\n8 7+1\n", ""), ("scontrol", "requeue", "7"): OK})
    await commands.requeue(slurm, HEAD, 8)
    assert slurm.said[-1] == ("scontrol", "requeue", "7")


async def test_one_that_somebody_has_requeued_already_is_no_fault_and_every_other_word_is() -> None:
    requeue = ("scontrol", "requeue", "7")
    named = {_named(7): (0, "7 7\n", "")}
    await commands.requeue(Scontrol({**named, requeue: (1, "", "Job is pending execution for job 7")}), HEAD, 7)
    told = {}
    for words in ("Only batch jobs are accepted or processed", "Job not heterogeneous job leader",
                  "Invalid job id specified", "Rate limit exceeded, please retry momentarily"):  # fmt: skip
        with pytest.raises(CommandFailed) as raised:
            await commands.requeue(Scontrol({**named, requeue: (1, "", words)}), HEAD, 7)
        told[words.split()[0]] = (commands.forbids_requeue(raised.value), commands.forgot(raised.value))
    assert told == {"Only": (True, False), "Job": (True, False), "Invalid": (False, True), "Rate": (False, False)}


async def test_how_a_task_ended_is_not_read_off_another_one() -> None:
    shown = "JobId=2 ArrayJobId=1 JobState=FAILED ExitCode=0:9\nJobId=1 ArrayJobId=1 JobState=COMPLETING ExitCode=0:0\n"
    slurm = Scontrol({("scontrol", "--oneliner", "show", "job", "1"): (0, shown, "")})
    assert await commands.job_word(slurm, HEAD, 1) == "COMPLETING"
    assert not await commands.ends_badly(slurm, HEAD, 1)
    assert not await commands.was_killed(slurm, HEAD, 1, 0)


async def test_a_team_without_a_qos_is_let_go_and_can_t_be_held_back() -> None:
    nothing = (1, " Nothing modified\n", "")
    for on, answer, fails in (
        (False, nothing, False),
        (True, nothing, True),
        (False, (1, "", "sacctmgr: error: Problem talking to the database: Connection refused"), True),
        (False, OK, False),
    ):
        argv = tuple(commands.holding_back("vision", on=on))
        slurm = Scontrol({argv: answer})
        if fails:
            with pytest.raises(CommandFailed):
                await commands.hold_back(slurm, HEAD, "vision", on=on)
        else:
            await commands.hold_back(slurm, HEAD, "vision", on=on)
        assert slurm.said == [argv]
