"""One node: its jobs, its incidents, and the actions that operators can take."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import Form
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, Operator, State
from headway.domain.slurm.nodes_and_jobs import BUSY, OUT
from headway.errors import Refused
from headway.schemas.jobs import JobOut
from headway.services.access.role_rights import Right
from headway.services.jobs.job_to_schema import job_out
from headway.services.nodes import node_actions as service
from headway.services.nodes.incidents import get_node_history
from headway.services.nodes.node_details import load_node_details
from headway.web.page_context import redirect_with_message
from headway.web.page_routes import page_router
from headway.web.rendering import render
from headway.web.views.state_wording import job_word, node_kind

router = page_router()
_GPU_USE = ("gpu_utilisation", "gpu_memory", "gpu_power", "gpu_temperature")
_GPU_HEALTH = ("gpu_ecc_corrected", "gpu_ecc_uncorrected", "gpu_nvlinks", "gpu_nvlink_errors")
_MACHINE = ("cpu", "memory", "network", "disk_io", "disk_space", "load")
CHART_SPAN_S = 3600  # time that the charts show first
_LOOKS = {"up": "ok", "idle": "info", "down": "bad", "drain": "warn", "start": "info"}
Word = Annotated[str, Form(max_length=400)]


@router.get("/clusters/{name}/nodes/{node}")
async def node_page(name: str, node: str, state: State, who: Anyone) -> Response:
    """Returns the page of one node."""
    detail = await load_node_details(state, name, node)
    past = await get_node_history(state, name, node)
    jobs = [job_out(job, state.clock()) for job in state.live.snapshot(name).jobs if node in job.nodes]
    kind, word = node_kind(detail.node)
    states = set(detail.node.states)
    return render(
        "node.html",
        viewer=who,
        name=name,
        tab="nodes",
        node=detail.node,
        simulated=detail.simulated_gpus,
        word=word,
        looks=_LOOKS[kind],
        incident=detail.incident,
        action=detail.action,
        past=past,
        jobs=[(job, *_job_look(job)) for job in jobs],
        names={job.id: job.name for job in jobs},
        chart_span=CHART_SPAN_S,
        charts_url=_charts(name, node, bool(detail.node.gpus)),
        may=who.may(Right.OPERATE_NODES),
        out=bool(states & OUT),
        busy=bool(states & BUSY),
        under_way=detail.action is not None and detail.action.ended_at is None,
    )


@router.post("/clusters/{name}/nodes/{node}/drain")
async def drain_node(name: str, node: str, state: State, who: Operator, reason: Word = "") -> Response:
    """Drains the node. Raises Refused without a reason."""
    words = " ".join(reason.split())
    if not words:
        raise Refused("the reason is empty", hint="the reason is shown to all users")
    done = await service.drain_node(state, who, name, node, words[:200])
    return _back(name, node, done.done)


@router.post("/clusters/{name}/nodes/{node}/return")
async def bring_back(name: str, node: str, state: State, who: Operator) -> Response:
    """Returns the node to service."""
    return _back(name, node, (await service.return_node(state, who, name, node)).done)


@router.post("/clusters/{name}/nodes/{node}/reboot")
async def reboot_node(name: str, node: str, state: State, who: Operator, busy: bool = Form(False)) -> Response:
    """Starts a reboot of the node."""
    await service.start_reboot(state, who, name, node, busy=busy)
    return _back(name, node, "its machine restarts")


@router.post("/clusters/{name}/nodes/{node}/test")
async def run_tests(name: str, node: str, state: State, who: Operator, hard: bool = Form(False)) -> Response:
    """Starts the node's tests."""
    await service.start_tests(state, who, name, node, hard=hard)
    return _back(name, node, "its tests run")


def _back(name: str, node: str, words: str) -> Response:
    return redirect_with_message(f"/clusters/{quote(name)}/nodes/{quote(node)}", f"{node}: {words}")


def _job_look(job: JobOut) -> tuple[str, str]:
    return job_word(job.state, job.reason)


def _charts(name: str, node: str, gpus: bool) -> str:
    keys = (*_GPU_USE, *_MACHINE, *_GPU_HEALTH) if gpus else _MACHINE
    series = "&".join(f"series={key}" for key in keys)
    return f"/api/v1/clusters/{quote(name)}/metrics?node={quote(node)}&{series}"
