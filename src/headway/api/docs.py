"""The API's documentation as one plain page made from its OpenAPI text: no script, nothing from elsewhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

router = APIRouter(include_in_schema=False)

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


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    return HTMLResponse(page(request.app.openapi()))


@router.get("/docs.css")
async def style() -> Response:
    return Response(STYLE, media_type="text/css")


def page(spec: dict[str, Any]) -> str:
    """The OpenAPI document as HTML."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Headway API</title>",
        "<meta name=viewport content='width=device-width'><link rel=stylesheet href=/api/docs.css>",
        f"<h1>Headway API {escape(str(spec['info']['version']))}</h1>",
        "<p>Send <code>Authorization: Bearer TOKEN</code>; <code>headway token create</code> makes one. ",
        "Every failure is an <code>ErrorOut</code>. The same as <a href=/api/openapi.json>OpenAPI</a>.</p>",
        "<h2>Requests</h2>",
    ]
    for path, methods in spec["paths"].items():
        parts += [_operation(path, method, operation) for method, operation in methods.items()]
    parts.append("<h2>Shapes</h2>")
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
    asked = _shape(operation.get("requestBody", {}).get("content", {}))
    given = ", ".join(
        f"{code} {shape}"
        for code, a in operation.get("responses", {}).items()
        if (shape := _shape(a.get("content", {})))
    )
    return (
        f"<details><summary><b>{method.upper()}</b><code>{escape(path)}</code></summary><p>{text}</p>"
        + (f"<table><tr><th>name<th>in<th>type{rows}</table>" if rows else "")
        + (f"<p>Body: {asked}</p>" if asked else "")
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
