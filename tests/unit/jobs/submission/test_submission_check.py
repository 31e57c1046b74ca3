"""Errors of a submission are found before sbatch runs, and sbatch --test-only gives the expected start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from headway.domain.slurm.nodes_and_jobs import NodeState
from headway.domain.teams import UserLimits
from headway.errors import Fault
from headway.jobs.submission.node_capacity import largest_node
from headway.jobs.submission.requested_resources import add_flags, requested_resources
from headway.jobs.submission.run_check import run_faults
from headway.jobs.submission.submission_check import parse_test_only, submission_faults
from headway.schemas.submission.run_request import RunIn
from headway.schemas.submission.submit_request import SubmitIn
from tests.support.clusters import builders

LAB = builders.cluster(2, 0)  # h100-8: 8 GPUs, 128 CPUs
# One machine is as the plan has it; the other was found to be another kind, and Slurm was told so.
AS_FOUND = (
    replace(builders.node("lab-1-1"), gpu_types=("h100",)),
    replace(builders.node("lab-1-2"), gpus=4, gpu_types=("a100",), cpus=256, memory_mib=3_000_000),
)

NOW = 1_790_000_000.0
SAID = "sbatch: Job 9 to start at {} using 8 processors on nodes lab-1-[1-2] in partition train"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SAID.format(int(NOW) + 60), (int(NOW) + 60, "lab-1-[1-2]", "train")),
        (SAID.format(3_145_000_000), (0, "", "train")),  # the end of the spare nodes' reservation
        (SAID.format("2026-11-21T10:00:00"), (0, "lab-1-[1-2]", "train")),  # an old Slurm, which knows no %s
        ("Submitted batch job 9", (0, "", "")),
    ],
)
def test_parse_test_only_reads_start_time_nodes_and_partition(text: str, expected: tuple[int, str, str]) -> None:
    assert parse_test_only(text, NOW) == expected


def wrong(*flags: str, nodes: Sequence[NodeState] = AS_FOUND) -> list[tuple[str, str]]:
    request = SubmitIn(script="#!/bin/bash\nsrun x\n", args=list(flags))
    return [(fault.path, fault.message) for fault in submission_faults(request, LAB, "alice", largest_node(LAB, nodes))]


@pytest.mark.parametrize(
    "flags",
    [
        ("--gres=gpu:a100:4",),
        ("--gpus-per-node=a100:4",),
        ("--gpus=12", "-N2"),
        ("--cpus-per-task=256",),
        ("--mem=2900G",),
        ("--gres=tmp:10G",),
        ("--gres=tmp:10G,gpu:a100:2",),
        ("--gres=gpumem:80G",),
        ("-N1-9", "--gpus-per-node=4"),
    ],
)
def test_accepts_resources_of_nodes_larger_than_the_plan(flags: tuple[str, ...]) -> None:
    assert wrong(*flags) == []


@pytest.mark.parametrize(
    ("flags", "field", "words"),
    [
        ("--gpus-per-node=9", "gpus", "the job requests 9 GPUs per node; a node of lab has 8"),
        ("--gpus=13", "gpus", "the job requests 13 GPUs; lab has 12"),
        ("--gpus=h100:8,a100:8", "gpus", "the job requests 16 GPUs; lab has 12"),
        ("--gpus=h100:8,l40s:1", "gpus", "lab has no GPU of type l40s"),
        ("--gres=tmp:1G,gpu:l40s:1", "gpus", "lab has no GPU of type l40s"),
        ("--cpus-per-task=257", "cpus", "the job requests 257 CPUs per node; a node has 256"),
        ("--mem=3000G", "memory", "the job requests 3000 GiB per node; a node has 2929"),
    ],
)
def test_refuses_resources_that_no_node_has(flags: str, field: str, words: str) -> None:
    assert wrong(flags) == [(field, words)]


def test_check_uses_the_plan_until_slurm_lists_nodes() -> None:
    assert wrong("--gpus=16", nodes=()) == []
    assert [field for field, _ in wrong("--gpus=17", nodes=())] == ["gpus"]
    assert [field for field, _ in wrong("--gres=gpu:a100:4", nodes=())] == ["gpus"]
    assert largest_node(LAB, AS_FOUND[1:]).gpu_types == ("a100", "h100")


def test_run_check_limits_gpus_to_the_largest_found_node() -> None:
    small = tuple(replace(one, gpus=4) for one in AS_FOUND)
    many = tuple(replace(one, gpus=10) for one in AS_FOUND)

    def run(gpus: int, nodes: Sequence[NodeState]) -> list[Fault]:
        return run_faults(RunIn(argv=["x"], gpus=gpus), LAB, largest_node(LAB, nodes))

    assert run(10, many) == []
    (fault,) = run(8, small)
    assert (fault.path, "more than 4 GPUs" in fault.message) == ("gpus", True)


def het(*components: str, word: str = "hetjob") -> str:
    parts = (f"#SBATCH {line}\n" for line in f" | {word} | ".join(components).split(" | "))
    return f"#!/bin/bash\n{''.join(parts)}srun x\n"


@pytest.mark.parametrize(
    ("script", "flags", "found"),
    [
        (het("-N1 --gpus-per-node=8", "-N8"), "", ["N1 G8", "N8 G0"]),
        (het("-N1 --gpus-per-node=8", "-N8", word="packjob"), "", ["N1 G8", "N8 G0"]),
        (het("-N1 -G8"), "", ["N1 G8"]),
        ("#!/bin/bash\n\t# as asked\n  #SBATCH -N9\n#SBATCH -N2 -G8\nsrun x\n", "", ["N2 G8"]),
        ("#!/bin/bash\n", "-N1 --gpus-per-node=8 : -N8", ["N1 G8", "N8 G0"]),
        (het("-N1", "-N2 -G2"), "-N3", ["N3 G0", "N3 G2"]),  # one set of flags is for all of them
        (het("-N1", "-N2 -G2", "-N3"), "-N4 : -N5", ["N4 G0", "N5 G2", "N5 G0"]),
        (het("-N1 -G1"), "-N2 : -G3", ["N2 G1", "NNone G3"]),
        (het("-N1 -t 60 -A red -p debug", "-N2 -t 5", "-N3"), "", ["N1 G0 60 red debug", "N2 G0 5 red", "N3 G0 5 red"]),
    ],
)
def test_each_hetjob_component_has_its_own_requested_resources(script: str, flags: str, found: list[str]) -> None:
    wants = requested_resources(SubmitIn(script=script, args=flags.split()))
    words = [[want.options.get(name, "") for name in ("time", "account", "partition")] for want in wants]
    assert [
        " ".join([f"N{one.nodes}", f"G{one.gpus}", *filter(None, more)]) for one, more in zip(wants, words, strict=True)
    ] == found


def test_hetjob_is_checked_per_component_and_in_total() -> None:
    def said(script: str, *flags: str) -> list[tuple[str, str]]:
        request = SubmitIn(script=script, args=list(flags))
        return [
            (fault.path, fault.message)
            for fault in submission_faults(request, LAB, "alice", largest_node(LAB, AS_FOUND))
        ]

    assert said(het("-N1 --gpus-per-node=8", "-N2")) == []  # 8 on one, none on the two others
    assert said(het("-N1 --gpus-per-node=8", "-N1 --gpus-per-node=4")) == []
    assert said(het("-N1 --gpus-per-node=8", "-N2 --gpus-per-node=4")) == [
        ("gpus", "the job requests 16 GPUs; lab has 12")
    ]
    assert said(het("-N1", "-N3 --gpus-per-node=9 -p nope")) == [
        ("partition", "component 2 of 2: lab has no partition 'nope'"),
        ("gpus", "component 2 of 2: the job requests 9 GPUs per node; a node of lab has 8"),
    ]


@pytest.mark.parametrize(
    ("flag", "gpus"),
    [
        ("--gpus=8", [("", 8)]), ("--gpus=h100", [("h100", 1)]), ("--gpus=h100=4", [("h100", 4)]),
        ("--gpus=gpu:h100:4", [("h100", 4)]), ("--gpus-per-node=3g.20gb:2", [("3g.20gb", 2)]),
        ("--gres=gpu", [("", 1)]), ("--gres=gres/gpu:2", [("", 2)]), ("--gres=gpu=2,tmp:1G", [("", 2)]),
        ("--gres=gpu:a100:2(S:0-1)", [("a100", 2)]), ("--gres=gpumem:8G", [("", 0)]), ("--gpus=1k", None),
        ("--tres-per-task=gpu:2", [("", 2)]), ("--tres-per-task=cpu:2,gres/gpu:h100=2", [("h100", 2)]),
        ("--gpus=a100:2,h100", [("a100", 2), ("h100", 1)]), ("--gpus-per-task=h100:many", None),
    ],
)  # fmt: skip
def test_gpus_are_counted_in_every_sbatch_notation(flag: str, gpus: list[tuple[str, int]] | None) -> None:
    [want] = requested_resources(SubmitIn(args=[flag]))
    assert bool(want.unparsed_options) == (gpus is None)
    if gpus is not None:
        assert (want.gpus, want.gpu_types) == (sum(n for _, n in gpus), tuple(kind for kind, _ in gpus if kind))


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        (["--cpus-per-task=²"], ""), (["--cpus-per-task=" + "9" * 5000], "cpus"), (["--mem=" + "9" * 400], "memory"),
        (["--mem=" + "9" * 5000 + "T"], "memory"), (["--time=" + "9" * 5000], "time"),
        (["--gpus-per-node=1", "--time=" + "9" * 400], "time"), (["--ntasks-per-node=" + "9" * 400, "-c2"], "cpus"),
    ],
)  # fmt: skip
def test_huge_numbers_are_faults_of_their_fields(flags: list[str], field: str) -> None:
    request = SubmitIn(script="#!/bin/bash\n", args=flags)
    assert [fault.path for fault in submission_faults(request, LAB, "alice", largest_node(LAB, AS_FOUND))] == (
        [field] if field else []
    )


def test_script_above_the_slurm_limit_is_reported_without_parsing() -> None:
    script = "#!/bin/sh\n#" + "TOKEN=********\n" * 300_000
    found = submission_faults(SubmitIn(script=script), LAB, "alice", largest_node(LAB, AS_FOUND))
    assert [(one.path, one.message) for one in found] == [("script", "it is longer than 4 MiB, Slurm's limit")]


def test_huge_node_list_is_not_expanded() -> None:
    [want] = requested_resources(SubmitIn(args=["-w", "lab-[1-999999999]", "-N", "9" * 5000]))
    assert (want.unparsed_options, want.gpus) == (["nodes", "nodelist"], 0)


def test_form_flags_are_added_to_the_first_component() -> None:
    assert add_flags(["-N1"], ["--time=5"]) == ["-N1", "--time=5"]
    assert add_flags(["-N1", ":", "-N2"], ["--time=5"]) == ["-N1", "--time=5", ":", "-N2"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--gpus=6",), ["the job requests 6 GPUs; alice may hold 4 at once in partition train"]),
        (("--gpus=4",), []),
        (("--gpus=4", "-p", "debug"), ["the job requests 4 GPUs; alice may hold 2 at once in partition debug"]),
        (("--gpus=4", "-p", "debug,train"), []),
    ],
)
def test_job_above_the_limit_of_its_user_is_refused(flags: tuple[str, ...], told: list[str]) -> None:
    (train,), (team, *others) = LAB.partitions, LAB.teams
    debug = replace(train, name="debug", default=False, per_user=UserLimits(gpus=2))
    teams = (replace(team, users=("alice",), per_user=UserLimits(gpus=4)), *others)
    limited = replace(LAB, partitions=(train, debug), teams=teams)
    request = SubmitIn(script="#!/bin/bash\nsrun x\n", args=list(flags))
    offer = largest_node(limited, AS_FOUND)
    assert [fault.message for fault in submission_faults(request, limited, "alice", offer)] == told
