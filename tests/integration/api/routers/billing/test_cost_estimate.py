"""Estimates name the price, start and budget of a job before it is submitted."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from headway.catalog.mig_profiles import lay_out
from headway.domain.cluster import Group, Partition
from headway.domain.machines.gpu_parts import GpuParts
from headway.domain.teams import Budget
from headway.schemas.submission.submit_request import SubmitOut
from tests.support.billing.billing_cluster import (
    OCTOBER,
    TEAMS,
    V1,
    accounting,
    at,
    server,
)
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server

__all__ = ["accounting", "server"]  # fixtures


async def test_estimate_reports_price_start_time_and_remaining_budget(server: Server) -> None:
    teams = (replace(TEAMS[0], budget=Budget("gpu_hours", Decimal(10), "month", 0.8, True)), TEAMS[1])
    server.backend.clusters["lab"]["teams"] = teams
    await server.apply("lab", note="budget")
    start = OCTOBER.start + 60
    text = f"sbatch: Job 5 to start at {start} using 64 processors on nodes lab-1-[1-2] in partition train"
    server.backend.answers["submit"] = SubmitOut(job_id=0, cluster="lab", user="alice", workdir="", message=text)
    alice = await server.client("alice", "member")
    ask = {"submit": {"script": "#!/bin/sh\n#SBATCH -N2 --gpus-per-node=8 -t 2:00:00\n"}}
    told = (await alice.post(f"{V1}/estimate", json=ask)).json()
    assert (told["gpus"], told["usd"], told["gpu_hours"], told["usd_per_hour"]) == (16, 32.0, 32.0, 16.0)
    assert (told["start"], told["expected_nodes"], told["team"]) == (start, "lab-1-[1-2]", "vision")
    assert "10.00 are left" in told["warning"]
    ask["submit"]["script"] += "#SBATCH --array=0-9:3,20%2\n"
    array = (await alice.post(f"{V1}/estimate", json=ask)).json()
    assert (array["tasks"], array["gpus"], array["usd"], array["gpu_hours"]) == (5, 16, 160.0, 160.0)
    parts = "#!/bin/sh\n#SBATCH -N1 --gpus-per-node=8 -t 2:00:00\n#SBATCH hetjob\n#SBATCH -N1 --gpus-per-node=4 -t 1:00:00\n"
    het = (await alice.post(f"{V1}/estimate", json={"submit": {"script": parts}})).json()
    assert (het["gpus"], het["nodes"], het["usd"], het["gpu_hours"], het["usd_per_hour"]) == (12, 2, 20.0, 20.0, 12.0)
    assert het["time_limit_s"] == 7200
    form = {"how": "script", "script": "#!/bin/sh\n", "nodes": "2", "gpus": "8", "time": "2:00:00"}
    page = (await alice.post("/clusters/lab/submit/check", data=form)).text
    assert ("32.00 USD" in page, "of 10.00 GPU-hours a month are left to vision" in page) == (True, True)
    assert "The job may use 32.00 GPU-hours, but only 10.00 are left" in page
    form = {"how": "script", "script": "#!/bin/sh\n", "flags": "-w /home/alice/nodes --gpus-per-node=8"}
    unread = (await alice.post("/clusters/lab/submit/check", data=form)).text
    assert ("is unknown; unread options: --nodelist." in unread, "USD an hour" in unread) == (True, False)
    server.backend.answers["history"] = ()
    assert "are left to vision" in (await alice.get("/clusters/lab/submit")).text
    await server.store.budgets.record("lab", "vision", OCTOBER.start, "over", capped=True)
    at(server, 60)
    held = (await alice.post(f"{V1}/estimate", json=ask)).json()
    assert (held["start"], held["budget"]["end"], held["expected_nodes"]) == (OCTOBER.end, OCTOBER.end, "")
    assert "will wait for the next period" in held["warning"]
    wrong = await alice.post(f"{V1}/estimate", json={"submit": {"script": "#!/bin/sh\n#SBATCH -N99\n"}})
    assert (wrong.status_code, "99 nodes" in wrong.text) == (422, True)


@pytest.mark.parametrize(
    ("gpus_on_each", "flags", "nodes", "gpus", "usd"),
    [
        (8, "-t 60 --ntasks=4 --gpus-per-task=8", 4, 32, 32.0),
        (8, "-t 60 -N2 --ntasks-per-node=4 --gpus-per-task=h100:1", 2, 8, 8.0),
        (8, "-t 60 -n4 --ntasks-per-node=2 --gpus-per-node=8", 2, 16, 16.0),
        (8, "-t 60 --gpus=12", 2, 12, 12.0),
        (8, "-t 60 -N2 --exclusive", 2, 16, 16.0),
        (8, "-t 60 --exclusive=user --gpus-per-node=2", 1, 2, 2.0),
        (8, "-t 60 -N4 --gpus-per-n=8", 4, 32, 32.0),
        (8, "-t 60 -QN4 --gres=gpu:h100:8", 4, 32, 32.0),
        (8, "-t 60 -n 32 --ntasks-per-node=8 --tres-per-task=cpu=2,gres/gpu:h100=1", 4, 32, 32.0),
        (8, "-t 60 -n 32 --tres-per-task=gres/gpu:1", 4, 32, 32.0),
        (8, "-t 60 -N4 --sockets-per-node=2 --gpus-per-socket=4", 4, 32, 32.0),
        (8, "-t 60 -N4 -B2 --gpus-per-socket=h100:2", 4, 16, 16.0),
        (8, "-t 60 -N 2-4 --gpus-per-node=8", 4, 32, 32.0),
        (8, "-t 60 -N 1,3 --gpus-per-node=8", 3, 24, 24.0),
        (8, "-t 60 -w lab-1-[1-4] --gpus-per-node=8", 4, 32, 32.0),
        (8, "-t 60 -n 16 -c 16 --gpus-per-node=8", 4, 32, 32.0),
        (8, "-t 60 --gpus=h100:8,h100:8 -N2", 2, 16, 16.0),
        (8, "-t 60 --gpus=32 --gpus-per-node=8", 4, 32, 32.0),
        (8, "-t 60 -n16 --ntasks-per-gpu=1", 2, 16, 16.0),
        (8, "-t 60 -n16 --ntasks-per-gpu=2", 1, 8, 8.0),
        (8, "-t 60 -N4 --gpus-per-socket=4", None, None, None),
        (8, "-t 60 -w /home/ann/nodes --gpus-per-node=8", None, None, None),
        (8, "-t 60 -N2 --gpus-per-rack=8", None, None, None),
        (0, "-t 60 -n 5 -c 25", 3, 0, 15.62),
        (0, "-t 60 -n 256", 4, 0, 32.0),
        (0, "-t 60 --nodes=4 --ntasks-per-node=64", 4, 0, 32.0),
        (0, "-t 60 -n 4 -c 8", 1, 0, 4.0),
        (0, "-t 60 -N2 --exclusive -c 4", 2, 0, 16.0),
        (0, "-t 60 --exclusive", 1, 0, 8.0),
        (0, "-t 60 -N3 -c 16", 3, 0, 6.0),
        (0, "-t UNLIMITED -N1 -c 64", 1, 0, None),
        (0, "-N1 -c 64", 1, 0, 192.0),
    ],
)
async def test_estimate_counts_all_nodes_and_gpus_a_job_would_hold(
    server: Server, gpus_on_each: int, flags: str, nodes: int | None, gpus: int | None, usd: float | None
) -> None:
    plan = replace(builders.H100, gpus=gpus_on_each, cpus=64, price_usd_per_node_hour=Decimal(8))
    parts = (Partition("train", tuple(f"lab-1-{i}" for i in (1, 2, 3, 4)), True, 1, None, 86400, (), False, 0, ()),)
    server.backend.clusters["lab"] |= {"plan": plan, "partitions": parts}
    await server.apply("lab", nodes=4, note=flags)
    server.backend.answers["submit"] = SubmitOut(job_id=0, cluster="lab", user="alice", workdir="", message="")
    alice = await server.client("alice", "member")
    script = f"#!/bin/sh\n#SBATCH {flags}\n"
    answer = await alice.post(f"{V1}/estimate", json={"submit": {"script": script}})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["nodes"], told["gpus"], told["usd"]) == (nodes, gpus, usd)
    assert (told["unread"] == []) == (gpus is not None)


@pytest.mark.parametrize(
    ("groups", "flags", "usd"),
    [  # (GPUs, CPUs, price, nodes) of each group
        (((0, 64, 2, 4), (0, 4, 1, 4)), "-n 4", 1.0),  # all of a small node, a 16th of a big one
        (((0, 64, 2, 4), (0, 4, 1, 4)), "-n 128", 4.0),  # of which there are not enough
        (((8, 64, 16, 4), (1, 64, 3, 4)), "-N1 --exclusive", 16.0),
        (((8, 64, 16, 4), (1, 64, 3, 4)), "-N1 --gpus-per-node=1", 3.0),
    ],
)
async def test_estimate_uses_the_most_expensive_nodes_that_fit(
    server: Server, groups: tuple[tuple[int, int, int, int], ...], flags: str, usd: float
) -> None:
    made = []
    for number, (gpus, cpus, price, nodes) in enumerate(groups):
        plan = replace(builders.H100, gpus=gpus, cpus=cpus)
        slots = tuple(f"lab-{number}-{i}" for i in range(nodes))
        made.append(Group(f"g{number}", plan, nodes, nodes, 0, slots, price_usd_per_node_hour=Decimal(price)))
    every = tuple(name for group in made for name in group.slots)
    parts = (Partition("train", every, True, 1, None, 86400, (), False, 0, ()),)
    server.backend.clusters["lab"] |= {"groups": tuple(made), "partitions": parts}
    await server.apply("lab", nodes=8, note=flags)
    server.backend.answers["submit"] = SubmitOut(job_id=0, cluster="lab", user="alice", workdir="", message="")
    ask = {"submit": {"script": f"#!/bin/sh\n#SBATCH -t 60 {flags}\n"}}
    answer = await (await server.client("alice", "member")).post(f"{V1}/estimate", json=ask)
    assert (answer.status_code, answer.json()["usd"]) == (200, usd), answer.text


@pytest.mark.parametrize(
    ("flags", "usd", "time_limit_s"),
    [
        ("-p cheap,dear -t 60 --gpus-per-node=8", 80.0, 3600),
        ("-p dear,cheap -t 60 --gpus-per-node=8", 80.0, 3600),
        ("-p cheap,dear --gpus-per-node=8", 80.0 * 24, 86400),
        ("-p cheap --gpus-per-node=8", 8.0, 3600),
        ("-p cheap,dear --time=UNLIMITED --gpus-per-node=8", None, None),
        ("-p whole -n 1 -t 60", 2.0, 3600),
        ("-p cpu -n 1 -t 60", 0.03, 3600),
        ("-p cpu,whole -n 1 -t 60", 2.0, 3600),
    ],
)
async def test_estimate_uses_the_most_expensive_partition(
    server: Server, flags: str, usd: float | None, time_limit_s: int | None
) -> None:
    made = []
    for name, price, gpus in (("cheap", 8, 8), ("dear", 80, 8), ("cpu", 2, 0)):
        plan = replace(builders.H100, gpus=gpus, gpu_type="h100" if gpus else "", cpus=64)
        slots = tuple(f"lab-{name}-{i}" for i in range(4))
        made.append(Group(name, plan, 4, 4, 0, slots, price_usd_per_node_hour=Decimal(price)))
    of = {group.name: group.slots for group in made}
    parts = (
        Partition("cheap", of["cheap"], True, 1, 7200, 3600, (), False, 0, ()),
        Partition("dear", of["dear"], False, 1, None, 86400, (), False, 0, ()),
        Partition("cpu", of["cpu"], False, 1, None, 3600, (), False, 0, ()),
        Partition("whole", of["cpu"], False, 1, None, 3600, (), False, 0, (), {"OverSubscribe": "EXCLUSIVE"}),
    )
    server.backend.clusters["lab"] |= {"groups": tuple(made), "partitions": parts}
    await server.apply("lab", nodes=12, note=flags)
    server.backend.answers["submit"] = SubmitOut(job_id=0, cluster="lab", user="alice", workdir="", message="")
    ask = {"submit": {"script": f"#!/bin/sh\n#SBATCH {flags}\n"}}
    answer = await (await server.client("alice", "member")).post(f"{V1}/estimate", json=ask)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["usd"], answer.json()["time_limit_s"]) == (usd, time_limit_s)


@pytest.mark.parametrize(
    ("parts", "flags", "gpus", "usd"),
    [
        (GpuParts(mig=lay_out(builders.H100, {"3g.40gb": 2})), "-t 420 --gres=gpu:3g.40gb:1", 0.4286, 3.0),
        (GpuParts(mig=lay_out(builders.H100, {"3g.40gb": 2})), "-t 420 --gpus=16", 6.8571, 48.0),
        (GpuParts(mig=lay_out(builders.H100, {"3g.40gb": 1, "1g.10gb": 3})), "-t 420 --gpus=1", 0.4286, 3.0),
        (GpuParts(shards=4), "-t 60 --gres=shard:2", 0.5, 0.5),
        (GpuParts(mps=True), "-t 60 -N2 --gres=mps:25", 0.5, 0.5),
    ],
)
async def test_estimate_counts_parts_of_gpus_as_their_share(
    server: Server, parts: GpuParts, flags: str, gpus: float, usd: float
) -> None:
    server.backend.clusters["lab"] |= {"parts": parts}
    await server.apply("lab", nodes=4, note=flags)
    server.backend.answers["submit"] = SubmitOut(job_id=0, cluster="lab", user="alice", workdir="", message="")
    alice = await server.client("alice", "member")
    answer = await alice.post(f"{V1}/estimate", json={"submit": {"script": f"#!/bin/sh\n#SBATCH {flags}\n"}})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["gpus"], answer.json()["usd"]) == (gpus, usd)
