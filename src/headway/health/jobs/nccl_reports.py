"""Reads what NCCL's RAS service says about the ranks of a job that stalls: which of them do not answer, and which have started
fewer operations than the others. Pure.

The text is that of NCCL 2.24 and later: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.health.jobs.stall_stragglers import RankStack

_SECTION = re.compile(r"^(#\d+-\d+ \([0-9a-f]+\) )?[A-Z]+$")  # "#0-0 (7a1b...) MISMATCH"
_COUNTS = re.compile(r"Communicator ranks have different (\S+) operation counts")
_GROUP = re.compile(r"\d+ ranks have (?:launched up to operation (\d+)|not launched any operations)")
_RANK = re.compile(
    r"Rank (\d+)( has (?:launched up to operation (\d+)|not launched any operations))? -- "
    r"GPU .* managed by process (\d+) on node (\S+)"
)


@dataclass(frozen=True, slots=True)
class ReportedRank:
    """A rank that NCCL names. `number` counts within its communicator, which may be a part of the job."""

    number: int
    pid: int
    host: str  # address
    what: str  # "does not answer NCCL", "has started 41 AllReduce operations, and others 42"


def reported_ranks(text: str) -> tuple[ReportedRank, ...]:
    """Returns the ranks in a report that do not answer or are behind the others, without repetition. A text of another form
    names none."""
    found: dict[tuple[int, str], ReportedRank] = {}
    section = operation = ""
    count, most = 0, 0
    counted: list[tuple[int, ReportedRank]] = []

    def end_counts() -> None:
        for started, one in counted:
            if started < most:
                what = f"has started {started} {operation} operations, and others {most}"
                found.setdefault((one.pid, one.host), ReportedRank(one.number, one.pid, one.host, what))
        counted.clear()

    for line in map(str.strip, text.splitlines()):
        if _SECTION.match(line):
            end_counts()
            section, operation = line.rpartition(" ")[2], ""
        elif begins := _COUNTS.match(line):
            end_counts()
            operation, most = begins[1], 0
        elif group := _GROUP.match(line):
            count = int(group[1] or 0)
            most = max(most, count)
        elif rank := _RANK.match(line):
            one = ReportedRank(int(rank[1]), int(rank[4]), rank[5], "does not answer NCCL")
            if operation:
                started = int(rank[3] or 0) if rank[2] else count
                most = max(most, started)
                counted.append((started, one))
            elif section == "INCOMPLETE":
                found.setdefault((one.pid, one.host), one)
    end_counts()
    return tuple(found.values())


def ranks_behind(
    reports: Iterable[str], stacks: Sequence[RankStack], node_of: Mapping[str, str]
) -> tuple[tuple[RankStack, str], ...]:
    """Returns the job's ranks that NCCL names, each with what is said of it. `node_of`: address -> node. NCCL numbers ranks
    within a communicator and names hosts by any of their addresses, so a rank is found by its process first. Reports
    about processes of other jobs name none."""
    found: dict[int, tuple[RankStack, str]] = {}
    for report in reports:
        for one in reported_ranks(report):
            node = node_of.get(one.host, "")
            same = [stack for stack in stacks if stack.pid == one.pid and node in ("", stack.node)]
            # In a container with process numbers of its own only the rank's number is left.
            same = same or [stack for stack in stacks if stack.rank == one.number and node == stack.node]
            if len(same) == 1:
                found.setdefault(same[0].rank, (same[0], one.what))
    return tuple(found[rank] for rank in sorted(found))
