"""The API's documentation as one plain page made from its OpenAPI document, without scripts and external resources."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from headway.schemas.base import API_PREFIX, PROBLEM_JSON

router = APIRouter(prefix=API_PREFIX, include_in_schema=False)

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
color-scheme: light dark }
code, pre { font: 13px/1.45 ui-monospace, monospace }
summary { cursor: pointer; padding: .35rem 0 }
details { border-bottom: 1px solid #8884; }
summary b { display: inline-block; width: 4.5rem }
pre { overflow: auto; padding: .6rem; background: #8882 }
table { border-collapse: collapse } td, th { text-align: left; padding: .15rem .8rem .15rem 0;
vertical-align: top }
"""


PROBLEMS = {  # kind -> (HTTP status, meaning)
    "invalid_spec": (422, "a cluster, pipeline, sweep or job file has faults; all are listed with their paths"),
    "not_signed_in": (401, "the token or session is missing, unknown or has ended"),
    "not_allowed": (403, "this person may not do this"),
    "sign_in_again": (403, "the browser session is too old for what can't be undone: sign in again"),
    "too_many_tries": (429, "too many failed sign-ins from this address; wait"),
    "too_many_submits": (
        429,
        "one person submits more jobs a minute than the server allows; nothing was done, Retry-After says how long to wait",
    ),
    "too_many_at_once": (
        429,
        "too many requests at once, or in a minute; nothing was done, try again in a moment",
    ),
    "not_found": (404, "it does not exist"),
    "conflict": (409, "it is in use, or it has changed since it was read"),
    "needs_confirmation": (409, "it disturbs jobs or sessions: read the plan and send its digest to confirm"),
    "refused": (400, "the request can't be carried out"),
    "unreachable": (503, "a machine, Slurm or the database does not answer; try again"),
    "command_failed": (502, "a program on the cluster ended with an error; the detail has its message"),
    "step_failed": (502, "a step on a machine failed; the detail names both"),
    "cloud_refusal": (400, "the cloud refused a request; nothing was rented"),
    "no_capacity": (400, "the cloud has no machine of this type in this zone now"),
    "quota_exceeded": (400, "a quota of the cloud account does not allow another machine"),
    "throttled": (429, "the cloud takes no more requests for the moment; try again in a minute"),
    "cloud_auth_failed": (400, "the cloud does not accept the server's credentials, or they lack a right"),
    "cloud_rejected": (400, "the cloud rejects the request itself: an unknown image, a wrong network"),
    "error": (400, "another error"),
    "bug": (500, "an unexpected error; the server's log has it"),
}


@router.get("/docs")
async def get_docs(request: Request) -> HTMLResponse:
    """Returns the documentation page."""
    return HTMLResponse(docs_html(request.app.openapi()))


@router.get("/docs.css")
async def get_docs_css() -> Response:
    """Returns the style sheet of the documentation page."""
    return Response(STYLE, media_type="text/css")


def docs_html(spec: dict[str, Any]) -> str:
    """Returns the OpenAPI document as HTML."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Headway API</title>",
        f"<meta name=viewport content='width=device-width'><link rel=stylesheet href={API_PREFIX}/docs.css>",
        f"<h1>Headway API {escape(str(spec['info']['version']))}</h1>",
        "<p>Send <code>Authorization: Bearer TOKEN</code>; <code>headway token create</code> makes one. ",
        f"Every failure is a <a href='#Problem'>Problem</a> ({PROBLEM_JSON}). The same as ",
        f"<a href={API_PREFIX}/openapi.json>OpenAPI</a>.</p>",
        "<h2>Requests</h2>",
    ]
    for path, methods in spec["paths"].items():
        parts += [_operation(path, method, operation) for method, operation in methods.items()]
    parts.append("<h2>Problems</h2><table><tr><th>kind<th>status<th>means")
    for kind, (status, means) in PROBLEMS.items():
        parts.append(f"<tr id='problem-{kind}'><td><code>{kind}</code><td>{status}<td>{escape(means)}")
    parts.append("</table><h2>Shapes</h2>")
    for name, schema in sorted(spec.get("components", {}).get("schemas", {}).items()):
        text = escape(json.dumps(schema, indent=1))
        parts.append(f"<details id='{escape(name)}'><summary>{escape(name)}</summary><pre>{text}</pre></details>")
    return "".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    text = escape(operation.get("description", "") or operation.get("summary", ""))
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code><td>{escape(p['in'])}<td>{escape(_type(p.get('schema', {})))}"
        for p in operation.get("parameters", ())
    )
    body = _shape(operation.get("requestBody", {}).get("content", {}))
    given = ", ".join(
        f"{code} {shape}"
        for code, a in operation.get("responses", {}).items()
        if (shape := _shape(a.get("content", {})))
    )
    return (
        f"<details><summary><b>{method.upper()}</b><code>{escape(path)}</code></summary><p>{text}</p>"
        + (f"<table><tr><th>name<th>in<th>type{rows}</table>" if rows else "")
        + (f"<p>Body: {body}</p>" if body else "")
        + (f"<p>Answers: {given}</p>" if given else "")
        + "</details>"
    )


def _shape(content: dict[str, Any]) -> str:
    for media in content.values():
        schema = media.get("schema", {})
        many = schema.get("type") == "array"
        reference = (schema.get("items", {}) if many else schema).get("$ref", "")
        if reference:
            name = escape(reference.rpartition("/")[2])
            return f"<a href='#{name}'>{name}</a>{' (list)' if many else ''}"
    return ""


def _type(schema: dict[str, Any]) -> str:
    return str(schema.get("type", ""))
