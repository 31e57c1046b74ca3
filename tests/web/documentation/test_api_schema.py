"""Every operation of the OpenAPI document answers generated requests without a server error and as its schema
describes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from headway.cluster.slurm_export.export import SlurmExport
from headway.domain.incident import FaultAction, Incident, IncidentState
from headway.domain.slurm.accounts import AccountShare
from headway.schemas.jobs import JobStacksOut, LogFoundOut, LogLineOut, LogPartOut
from headway.schemas.nodes.fabric_tests import FabricTestOut
from headway.schemas.storage.volumes import VolumeSpeedOut
from headway.schemas.submission.exec_commands import ExecOut
from headway.schemas.submission.submit_request import SubmitOut
from headway.schemas.whatif import WhatIfOut
from headway.server.cluster_backend.cluster_lifecycle import LifecycleBackend
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, changes, reading

JOBS = (builders.job(1, nodes=("lab-1-1",)), builders.job(2, "PENDING", more={"nice": 5}), builders.job(3, "FAILED"))


async def rebooted(*_: Any) -> Any:
    async def up() -> str:
        return "up"

    return up()


async def hello(*_: Any) -> AsyncIterator[tuple[str, bytes]]:
    yield "out", b"hello\n"
    yield "code", b"0"


def answers() -> dict[str, Any]:
    submitted = SubmitOut(job_id=5, cluster="lab", user="ann", workdir="/home/ann")
    incident = Incident(1, "lab", "lab-1-1", "XID 79", FaultAction.REBOOT, IncidentState.RETURNED, 1.0, 1.0)
    return {
        "query_metrics": (),
        "plan": changes(),
        "plan_rollout": changes(),
        "apply": None,
        "take_down": (),
        "readiness_checks": (),
        "slurm_export": SlurmExport({"slurm.conf": "ClusterName=lab\n"}, (), ()),
        "machines": (builders.machine("lab-head"),),
        "read": reading(*JOBS),
        "history": JOBS,
        "job": lambda _cluster, number: builders.job(number),
        "task": JOBS[0],
        "array_states": {"1": "COMPLETED"},
        "progress": {},
        "submit": submitted,
        "store_bundle": True,
        "install_job_secrets": (),
        "cancel": None,
        "run_command": ExecOut(code=0),
        "step_result_files": {},
        "run_interactive": hello,
        "run_on_terminal": hello,
        "follow_log": [b"loss 1.0\n"],
        "follow_array_logs": [b"1: loss 1.0\n"],
        "return_incident_node": incident,
        "inject_fault": "done",
        "drain_node": "drained",
        "return_node": "returned",
        "reboot_node": rebooted,
        "test_node": (("gpus", True, "answer"),),
        "rank_stacks": JobStacksOut(),
        "volume_space": (),
        "replay": WhatIfOut(hours=1.0, jobs=0, figures={}),
        "test_fabric": FabricTestOut(cluster="lab", operation="", at=0.0),
        "measure_volumes": (VolumeSpeedOut(path="/scratch", write_mib_s=900.0),),
        "shares": (AccountShare("default", 1.0, 0.5, 0.4, 12.5),),
        "control": None,
        "job_runs": JOBS[2:],
        "log_part": LogPartOut(text="loss 1.0\n", start=0, end=9, size=9),
        "search_log": LogFoundOut(found=[LogLineOut(offset=0, line=1, text="loss 1.0")]),
    }


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Yields (URL, an admin's token) of the app with fakes, served from a thread."""
    ready: list[tuple[str, str]] = []
    started, loop = threading.Event(), asyncio.new_event_loop()
    http: list[uvicorn.Server] = []

    async def serve(folder: Path) -> None:
        server = await server_fakes.start(folder, builders.Clock())
        server.backend.answers.update(answers())
        server.backend.lifecycle.resolve = LifecycleBackend(None).resolve  # type: ignore[method-assign,arg-type]
        await furnish(server)
        _, token = await server.store.tokens.create("ann")
        config = uvicorn.Config(server.app, port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        http.append(uvicorn.Server(config))
        serving = asyncio.create_task(http[0].serve())
        while not http[0].started:
            await asyncio.sleep(0.01)
        ready.append((f"http://127.0.0.1:{http[0].servers[0].sockets[0].getsockname()[1]}", token))
        started.set()
        await serving
        await server.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(tmp_path_factory.mktemp("schema")),))
    thread.start()
    try:
        assert started.wait(60)
        yield ready[0]
    finally:
        for one in http:
            one.should_exit = True
        thread.join(30)
        loop.close()


async def furnish(server: Server) -> None:
    await server.apply()
    server.backend.answers["rented_things"] = ((), ())
    await server.store.people.set_role("ann", "admin")


def streams(operation: Any) -> bool:
    """Returns whether an operation is a stream, which ends only when the client leaves."""
    return "text/event-stream" in str(operation.definition.raw.get("responses", {}).get("200", {}))


@pytest.mark.parametrize("examples", [3, pytest.param(200, marks=pytest.mark.soak)])
def test_generated_requests_get_valid_responses_per_openapi_schema(live: tuple[str, str], examples: int) -> None:
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    url, token = live
    schema = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json")
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    how = settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    faults, count = [], 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if streams(operation):
            continue
        count += 1

        @how
        @given(case=operation.as_strategy())
        def holds(case: Any) -> None:
            if "name" in case.path_parameters:
                case.path_parameters["name"] = "lab"  # otherwise nearly every request ends at "no such cluster"
            # Tests do not leave this machine, so prices can't be fetched: 503 is the right answer.
            away = case.operation.path == "/api/v1/offers/refresh"
            mine = [check for check in checks if not (away and check is not_a_server_error)]
            case.call_and_validate(headers={"authorization": f"Bearer {token}"}, checks=mine, timeout=60)

        try:
            holds()
        except (Exception, BaseExceptionGroup) as error:
            faults.append(f"{operation.method.upper()} {operation.path}: {error}"[:1500])
    assert not faults, "\n\n".join(faults)
    assert count > 40
