"""Commands set node states, against answers of a real scontrol."""

from __future__ import annotations

import pytest

from headway.errors import CommandFailed
from headway.slurm import node_commands
from tests.support.clusters.slurm_commands import HEAD, OK, Scontrol

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
async def test_node_reason_excludes_fields_after_it(reason: str, behind: str) -> None:
    show = ("scontrol", "--oneliner", "show", "node", "lab-1-2")
    line = f"NodeName=lab-1-2 Arch=x86_64 State=IDLE+DRAIN ThreadsPerCore=1 Reason={reason} {SAID}{behind}\n"
    states, found = await node_commands.read_node_state(Scontrol({show: (0, line, "")}), HEAD, "lab-1-2")
    assert (states, found) == ({"IDLE", "DRAIN"}, reason)


async def test_node_down_reason_is_single_line_argument() -> None:
    down = ("scontrol", "update", "NodeName=lab-1-1", "State=DOWN", "Reason=gpu 3 lost; rm -rf /")
    slurm = Scontrol({down: OK})
    await node_commands.set_node_down(slurm, HEAD, "lab-1-1", "gpu 3\nlost; rm -rf /")
    assert slurm.said == [down]


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        ("IDLE+DRAIN Reason=ours [root@2026-01-01T00:00:00]", ""),
        ("DOWN Reason=bob: a fan [root@2026-01-01T00:00:00]", "bob: a fan"),
        ("IDLE Reason=bob: a fan [root@2026-01-01T00:00:00]", ""),
    ],
)
async def test_node_is_resumed_only_with_matching_reason(now: str, kept: str) -> None:
    show = ("scontrol", "--oneliner", "show", "node", "lab-1-1")
    resume = ("scontrol", "update", "NodeName=lab-1-1", "State=RESUME")
    slurm = Scontrol({show: (0, f"NodeName=lab-1-1 State={now}\n", ""), resume: OK})
    assert await node_commands.resume_node_if(slurm, HEAD, "lab-1-1", lambda reason: reason == "ours") == kept
    assert slurm.said == ([show] if kept else [show, resume])


async def test_resuming_node_in_service_is_no_error() -> None:
    resume = ("scontrol", "update", "NodeName=lab-1-1", "State=RESUME")
    await node_commands.resume_node(
        Scontrol({resume: (1, "", "slurm_update error: Invalid node state specified")}), HEAD, "lab-1-1"
    )
    with pytest.raises(CommandFailed, match="Invalid node name"):
        await node_commands.resume_node(Scontrol({resume: (1, "", "Invalid node name specified")}), HEAD, "lab-1-1")


@pytest.mark.parametrize(
    ("words", "serves"),
    [
        ("idle mixed allocated completing reserved planned maint mixed$ allocated$", True),
        ("down drained draining fail unknown inval future down* idle* maint* idle~ mixed# idle% mixed@ reboot^", False),
        ("down$ drained$ draining$", False),
    ],
)
def test_is_in_service_classifies_node_states(words: str, serves: bool) -> None:
    assert {word: node_commands.is_in_service(word) for word in words.split()} == dict.fromkeys(words.split(), serves)
