"""The FastAPI app: routers, error handlers, and the headers and limits that apply to every request."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI

from headway import __version__
from headway.api import docs_page
from headway.api.http import error_handlers
from headway.api.http.compression import CompressResponses
from headway.api.http.idempotency import IdempotentPosts
from headway.api.http.request_guard import RequestGuard
from headway.api.http.security_headers import HSTS, SECURITY_HEADERS
from headway.api.routers.access import (
    audit,
    linux_users,
    own_limits,
    people,
    scim,
    server,
    sessions,
    team_usage,
    tokens,
)
from headway.api.routers.billing import (
    budgets,
    capacity,
    checkpoints,
    cost_estimate,
    energy,
    goodput,
    invoices,
    node_states,
    offers,
    sizes,
    usage,
)
from headway.api.routers.cluster import (
    activity,
    backups,
    clusters,
    event_stream,
    fabric_tests,
    incidents,
    key_rotation,
    metrics,
    nodes,
    operations,
    rentals,
    rollouts,
    schedule,
    whatif,
)
from headway.api.routers.jobs import (
    batches,
    exec_commands,
    jobs,
    lineage,
    logs,
    mlflow,
    models,
    notebooks,
    pipelines,
    secrets,
    services,
    submissions,
    sweeps,
    training_metrics,
    trainings,
)
from headway.api.routers.storage import datasets, environments, storage
from headway.schemas.base import API_PREFIX, PROBLEM_JSON, Problem
from headway.services.app_state import AppState

FAILURES = tuple(map(HTTPStatus, (400, 401, 403, 404, 409, 422, 429, 502, 503)))  # of any operation of the API


def create_app(state: AppState) -> FastAPI:
    """Returns the API app for this state. The composition root mounts the dashboard on top of it."""
    app = Api(
        title="Headway",
        version=__version__,
        description="Clusters, jobs and people of one Headway server.",
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API_PREFIX}/openapi.json",
    )
    app.state.headway = state
    modules = (
        jobs,  # routes are tried in this order, so the most frequent come first
        clusters,
        operations,
        event_stream,
        activity,
        incidents,
        nodes,
        backups,
        key_rotation,
        storage,
        rentals,
        fabric_tests,
        whatif,
        datasets,
        environments,
        rollouts,
        schedule,
        metrics,
        training_metrics,
        trainings,
        logs,
        mlflow,
        notebooks,
        submissions,
        lineage,
        pipelines,
        sweeps,
        services,
        batches,
        models,
        secrets,
        exec_commands,
        usage,
        invoices,
        budgets,
        cost_estimate,
        goodput,
        energy,
        capacity,
        node_states,
        checkpoints,
        offers,
        sizes,
        server,
        people,
        tokens,
        sessions,
        team_usage,
        own_limits,
        linux_users,
        audit,
        docs_page,
        scim,
    )
    # include_router would make a second copy of each route with validators of its own, at the first request: 7 MB.
    for module in modules:
        app.router.routes.extend(module.router.routes)
    headers = security_headers(state.settings.url, own_certificate=bool(state.settings.fingerprint))
    error_handlers.install_error_handlers(app, headers)
    app.add_middleware(IdempotentPosts)
    app.add_middleware(CompressResponses)
    app.add_middleware(RequestGuard, hosts=state.settings.allowed_hosts, headers=headers)
    return app


def security_headers(url: str, *, own_certificate: bool = False) -> dict[str, str]:
    """Returns the headers of every response. HSTS is set only if the server has the host's usual HTTPS port: it applies
    to all ports of the host and of hosts below it, and another service on the host may use plain HTTP. It is
    not set for a certificate that the server made for itself, because browsers with HSTS let no person accept one."""
    parts = urlsplit(url)
    ours = parts.scheme == "https" and parts.port in (None, 443) and not own_certificate
    return {**SECURITY_HEADERS, HSTS: "max-age=31536000; includeSubDomains"} if ours else SECURITY_HEADERS


class Api(FastAPI):
    """FastAPI app whose OpenAPI document declares failures as problem documents (RFC 9457)."""

    def openapi(self) -> dict[str, Any]:
        """Returns the OpenAPI document, in which every operation can fail with each status of FAILURES.

        They are added here: as `responses` of the app each route would have a validator for each of them, 7 MB."""
        if self.openapi_schema is None:
            document = super().openapi()
            models: dict[str, Any] = document["components"]["schemas"]
            for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own form of 422
                models.pop(name, None)
            problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
            models |= problem.pop("$defs", {}) | {Problem.__name__: problem}
            document["components"]["schemas"] = dict(sorted(models.items()))
            schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
            for operation in (one for methods in document["paths"].values() for one in methods.values()):
                for status in FAILURES:
                    operation["responses"][str(status.value)] = {
                        "description": status.phrase,
                        "content": {PROBLEM_JSON: {"schema": schema}},
                    }
        return super().openapi()
