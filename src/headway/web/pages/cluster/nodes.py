"""All nodes of a cluster: the fabric map, the table, the partitions.

GET /clusters/NAME/nodes     the page; ?state=, ?q= and ?after= choose the table's rows
GET /clusters/NAME/fabric    the map's data, JSON: {leaves: [{name, nodes: [[name, kind, word, spare, [job a GPU], [percent a
                             GPU]]]}], jobs: {number: name}, trouble}; with ?use=1 what each GPU does now, as Prometheus has it"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import JSONResponse, Response

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.security_headers import PAGE_HEADERS
from headway.domain.cluster import Partition
from headway.domain.slurm.hostlist import natural_key
from headway.schemas.nodes.nodes import NodeOut
from headway.services.cluster.cluster_to_schema import cluster_out
from headway.services.monitoring.metrics import get_gpu_utilisation
from headway.services.nodes.nodes_to_schema import node_outs
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.overview import groups_view
from headway.web.views.state_wording import duration, node_kind

router = page_router()
ROWS = 100
LOOKS = {"up": "ok", "idle": "info", "down": "bad", "drain": "warn", "start": "info"}
CHART_SPAN_S = 3600  # time that the charts show first
_GPU_SERIES = ("utilisation", "power", "temperature")
_MACHINE_SERIES = ("machines_up", "cpu", "memory", "network", "disk_io")
STATES = {"": "all", "up": "in use", "idle": "idle", "drain": "drained", "down": "down", "start": "starting"}


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node in the table."""

    node: NodeOut
    kind: str
    word: str
    looks: str
    used: int
    jobs: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition in the table."""

    name: str
    default: bool
    nodes: int
    usable: int
    busy: int
    limit: str
    teams: str
    preempts: str


@router.get("/clusters/{name}/fabric")
async def fabric_map(name: str, state: State, _: Anyone, use: bool = False) -> Response:
    """Returns the data of the fabric map."""
    cluster = (await state.clusters.get(name))[1]
    snapshot = state.live.snapshot(name)
    nodes = node_outs(cluster, snapshot)[1:]
    known, trouble = await get_gpu_utilisation(state, cluster) if use else ({}, "")
    job_ids = {gpu.job_id for node in nodes for gpu in node.gpus if gpu.job_id is not None}
    content = {
        "leaves": _leaves(nodes, known),
        "jobs": {job.id: job.name for job in snapshot.jobs if job.id in job_ids},
        "trouble": trouble,
    }
    return JSONResponse(content, headers=PAGE_HEADERS)


@router.get("/clusters/{name}/nodes")
async def nodes_page(name: str, state: State, who: Anyone, show: str = "", q: str = "", after: int = 0) -> Response:
    """Returns the page of nodes."""
    cluster = (await state.clusters.get(name))[1]
    snapshot = state.live.snapshot(name)
    nodes = node_outs(cluster, snapshot)[1:]
    names = {job.id: job.name for job in snapshot.jobs}
    every = [_row(node, names) for node in nodes]
    kinds = Counter(row.kind for row in every)
    show, words, after = show if show in STATES else "", q.strip()[:80].lower(), max(0, after)
    found = [row for row in every if (not show or row.kind == show) and _matches(row, words)]
    return render(
        "nodes.html",
        viewer=who,
        name=name,
        tab="nodes",
        rows=found[after : after + ROWS],
        found=len(found),
        first=after,
        before=_address(show, q, after - ROWS) if after else "",
        further=_address(show, q, after + ROWS) if len(found) > after + ROWS else "",
        states=STATES,
        counts={key: kinds[key] for key in STATES} | {"": len(every)},
        show=show,
        q=q,
        gpus=any(node.gpus for node in nodes),
        simulated=cluster.simulated_gpus,
        partitions=[_partition(partition, nodes) for partition in cluster.partitions],
        groups=groups_view(cluster_out(await state.clusters.row(name), snapshot)),
        creating=snapshot.as_of is None,
        chart_span=CHART_SPAN_S,
        charts_url=_charts(name, gpus=any(node.gpus for node in nodes)),
    )


def _charts(name: str, *, gpus: bool) -> str:
    series = (*(_GPU_SERIES if gpus else ()), *_MACHINE_SERIES)
    return f"/api/v1/clusters/{quote(name)}/metrics?" + "&".join(f"series={key}" for key in series)


def _address(show: str, q: str, after: int) -> str:
    return "?" + urlencode({key: value for key, value in (("show", show), ("q", q), ("after", max(0, after))) if value})


def _row(node: NodeOut, names: Mapping[int, str]) -> NodeRow:
    kind, word = node_kind(node)
    gpus_by_job = Counter(gpu.job_id for gpu in node.gpus if gpu.job_id is not None)
    jobs = tuple((job, names.get(job, "")) for job in sorted(gpus_by_job))
    return NodeRow(node, kind, word, LOOKS[kind], sum(gpus_by_job.values()), jobs)


def _matches(row: NodeRow, words: str) -> bool:
    where = f"{row.node.name} {row.node.leaf} {row.node.reason} {' '.join(f'{n} {name}' for n, name in row.jobs)}"
    return words in where.lower()


def _partition(partition: Partition, nodes: Iterable[NodeOut]) -> PartitionRow:
    there = set(partition.nodes)
    mine = [node for node in nodes if node.name in there]
    busy = sum(node_kind(node)[0] == "up" for node in mine)
    limit = duration(partition.max_time_s) if partition.max_time_s else "none"
    usable = sum(node.usable for node in mine)
    teams = ", ".join(partition.teams) or "all"
    return PartitionRow(
        partition.name, partition.default, len(mine), usable, busy, limit, teams, ", ".join(partition.preempts)
    )


def _leaves(nodes: Iterable[NodeOut], use: Mapping[tuple[str, int], int]) -> list[dict[str, Any]]:
    leaves: dict[str, list[NodeOut]] = {}
    for node in nodes:
        leaves.setdefault(node.leaf or "leaf1", []).append(node)
    return [
        {"name": leaf, "nodes": [_short(node, use) for node in sorted(leaves[leaf], key=lambda n: natural_key(n.name))]}
        for leaf in sorted(leaves, key=natural_key)
    ]


def _short(node: NodeOut, use: Mapping[tuple[str, int], int]) -> list[Any]:
    kind, word = node_kind(node)
    jobs = [gpu.job_id or 0 for gpu in node.gpus]
    numbers = [gpu.index if gpu.gpu is None else gpu.gpu for gpu in node.gpus]
    known = [use.get((node.name, number)) for number in numbers] if use else []
    return [node.name, kind, word, int(node.role == "spare"), jobs, known]
