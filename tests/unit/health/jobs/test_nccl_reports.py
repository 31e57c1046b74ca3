"""Ranks that NCCL's RAS service names in a report: those that are behind, and those that do not answer."""

from __future__ import annotations

from headway.health.jobs.nccl_reports import ranks_behind, reported_ranks
from headway.health.jobs.stall_stragglers import RankStack

# The form of src/ras/client_support.cc of NCCL 2.28.
BEHIND = """NCCL version 2.28.9 compiled with CUDA 12.8
Errors
======

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 42
  Rank 5 has launched up to operation 41 -- GPU 1 managed by process 105 on node 10.0.0.12
"""
SILENT = """Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 106 on node 10.0.0.12 managing GPU 2

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 6 -- GPU 2 managed by process 106 on node 10.0.0.12

Warnings
========

TIMEOUT
  Encountered 1 communication timeout while gathering communicator data
"""
GROUPS = """#1-2 (cf264af53edbe986) MISMATCH
  Communicator ranks have different status
  Rank 3 has status INIT -- GPU 3 managed by process 103 on node 10.0.0.11
  Communicator ranks have different Broadcast operation counts
  5 ranks have launched up to operation 3
  2 ranks have launched up to operation 2
  Rank 0 -- GPU 0 managed by process 100 on node 10.0.0.11
  Rank 1 -- GPU 1 managed by process 101 on node 10.0.0.11
  Rank 7 has not launched any operations -- GPU 3 (NVML 7) managed by process 107 on node 10.0.0.12
  Communicator ranks have different AllReduce operation counts
  7 ranks have not launched any operations
  Rank 2 has launched up to operation 9 -- GPU 2 managed by process 102 on node 10.0.0.11
"""
STACKS = [RankStack(rank, f"lab-1-{rank // 4 + 1}", ("all_reduce (d.py:9)",), 100 + rank) for rank in range(8)]
NODES = {"10.0.0.11": "lab-1-1", "10.0.0.12": "lab-1-2"}


def said(text: str) -> list[tuple[int, str]]:
    return [(one.number, one.what) for one in reported_ranks(text)]


def test_ranks_behind_and_silent_ones_are_named() -> None:
    assert said(BEHIND) == [(5, "has started 41 AllReduce operations, and others 42")]
    assert said(SILENT) == [(6, "does not answer NCCL")]


def test_rank_that_is_ahead_or_only_starts_is_not_named() -> None:
    behind = "has started {} Broadcast operations, and others 3"
    assert said(GROUPS) == [(0, behind.format(2)), (1, behind.format(2)), (7, behind.format(0))]


def test_other_text_names_nobody() -> None:
    for text in ("", "ERROR: Unknown command", "Rank x -- GPU", "\0" * 100):
        assert reported_ranks(text) == ()


def test_rank_is_found_by_its_process_on_any_address_of_its_node() -> None:
    assert ranks_behind([BEHIND, BEHIND], STACKS, NODES) == (
        (STACKS[5], "has started 41 AllReduce operations, and others 42"),
    )
    by_fabric = BEHIND.replace("10.0.0.12", "192.168.7.12")
    assert [stack.rank for stack, _ in ranks_behind([by_fabric], STACKS, NODES)] == [5]


def test_process_of_another_job_names_nobody_unless_its_container_has_numbers_of_its_own() -> None:
    stranger = BEHIND.replace("Rank 5", "Rank 1").replace("process 105", "process 9")
    assert ranks_behind([stranger], STACKS, NODES) == (), "rank 1 of this job is on another node"
    inside = BEHIND.replace("process 105", "process 9")
    assert [stack.rank for stack, _ in ranks_behind([inside], STACKS, NODES)] == [5]
