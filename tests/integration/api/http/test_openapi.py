"""The OpenAPI document declares every media type that the API sends."""

from __future__ import annotations

from typing import Any

from tests.support.servers.server_fakes import Server

API = "/api/v1"


def formats(operation: dict[str, Any]) -> list[str]:
    """Returns the values of an operation's `format` parameter."""
    schemas = [one["schema"] for one in operation.get("parameters", ()) if one["name"] == "format"]
    return [value for schema in schemas for value in schema.get("enum", ())]


async def test_every_format_of_an_answer_is_declared(server: Server) -> None:
    document = (await server.anonymous().get(f"{API}/openapi.json")).json()
    media = {"csv": "text/csv", "json": "application/json", "jsonl": "application/jsonl"}
    found = {}
    for path, methods in document["paths"].items():
        for operation in methods.values():
            if wanted := formats(operation):
                found[path] = set(operation["responses"]["200"]["content"]) == {media[name] for name in wanted}
    assert len(found) >= 5
    assert all(found.values()), found


async def test_audit_export_has_the_declared_media_types(server: Server) -> None:
    ann = await server.client("ann")
    for name, media in (("csv", "text/csv"), ("jsonl", "application/jsonl")):
        answer = await ann.get(f"{API}/audit/export?format={name}")
        assert answer.headers["content-type"].partition(";")[0] == media
