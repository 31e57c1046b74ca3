"""Collects the stacks of a job's ranks from its nodes, with py-spy that the server sends along."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headway.cluster.context import ClusterContext
from headway.domain.machines.machine import Machine
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError
from headway.health.jobs.stall_stragglers import RankStack
from headway.transport.remote_program import program_source

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class JobStacks:
    """Stacks of a job's ranks. `nccl`: by node, what NCCL says about its communicators. `errors`: by node, why stacks are
    missing."""

    stacks: tuple[RankStack, ...]
    nccl: Mapping[str, str]
    errors: Mapping[str, str]


async def collect_stacks(context: ClusterContext, machines: Mapping[str, Machine], job: JobState) -> JobStacks:
    """Returns the stacks of all ranks of a running job. Each rank is stopped for some milliseconds while its stack is
    read. Nodes that do not answer are in `errors`."""
    reached = [machines[name] for name in job.nodes if name in machines]
    answers = await asyncio.gather(*(_read_node(context, machine, job.id) for machine in reached))
    stacks: list[RankStack] = []
    nccl: dict[str, str] = {}
    errors: dict[str, str] = {}
    for machine, answer in zip(reached, answers, strict=True):
        if isinstance(answer, str):
            errors[machine.name] = answer
            continue
        for rank in answer["ranks"]:
            stacks.append(RankStack(int(rank["rank"]), machine.name, tuple(map(str, rank["frames"])), int(rank["pid"])))
            if rank["error"]:
                errors[machine.name] = str(rank["error"])
        if answer["nccl"]:
            nccl[machine.name] = str(answer["nccl"])
    return JobStacks(tuple(sorted(stacks, key=lambda stack: stack.rank)), nccl, errors)


async def _read_node(context: ClusterContext, machine: Machine, job: int) -> dict[str, Any] | str:
    """Returns the answer of node/programs/rank_stacks.py, or why there is none."""
    program = py_spy()
    request = json.dumps({"job": job, "py_spy": len(program)})
    argv = ["python3", "-I", "-S", "-c", program_source("rank_stacks"), request]
    try:
        ran = await context.connections.remote(machine, argv, timeout_s=_TIMEOUT_S, input=program)
        answer = json.loads(ran.stdout)
    except HeadwayError as error:
        return error.message
    except ValueError:
        return "the answer can't be read"
    return answer if isinstance(answer, dict) else "the answer can't be read"


@cache
def py_spy() -> bytes:
    """Returns the program py-spy of this installation, b"" if it is not installed. It needs only
    a C library of glibc on machines of this processor architecture."""
    path = Path(sys.executable).with_name("py-spy")
    return path.read_bytes() if path.is_file() else b""
