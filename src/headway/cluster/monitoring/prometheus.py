"""Queries the Prometheus of a cluster's head through the pinned SSH connection, because it listens on the head's
loopback only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headway.cluster.monitoring.metric_queries import Query, Row
from headway.domain.machine import Machine
from headway.errors import HeadwayError, Unreachable
from headway.render.monitoring.prometheus import PROMETHEUS_PORT

if TYPE_CHECKING:
    import httpx

ANSWER_S = 10.0
QUERIES_AT_ONCE = 4


class Forwards(Protocol):
    """The part of Connections that this module needs. `forward_port` returns the path of a local socket that leads to a
    port on the machine."""

    async def forward_port(self, machine: Machine, port: int) -> str: ...


async def query_range(
    connections: Forwards, head: Machine, queries: Sequence[Query], start: float, end: float, step_s: int
) -> tuple[Row, ...]:
    """Returns the rows of all queries. `start`, `end`: unix seconds; `step_s`: seconds. Raises Unreachable if
    Prometheus or the head does not answer, HeadwayError if Prometheus refuses a query."""
    import httpx

    path = await connections.forward_port(head, PROMETHEUS_PORT)
    few = asyncio.Semaphore(QUERIES_AT_ONCE)
    transport = httpx.AsyncHTTPTransport(uds=path)
    async with httpx.AsyncClient(transport=transport, base_url="http://prometheus", timeout=ANSWER_S) as client:

        async def one(query: Query) -> list[Row]:
            asked = {"query": query.text, "start": f"{start:.0f}", "end": f"{end:.0f}", "step": str(step_s)}
            async with few:
                try:
                    answer = await client.post("/api/v1/query_range", data=asked)
                except httpx.TimeoutException as error:
                    raise _away(head, f"did not answer within {ANSWER_S:g} s") from error
                except httpx.TransportError as error:
                    raise _away(head, "does not answer") from error
            return _rows(head, query, answer)

        found = await asyncio.gather(*(one(query) for query in queries))
    return tuple(row for rows in found for row in rows)


def _rows(head: Machine, query: Query, answer: httpx.Response) -> list[Row]:
    try:
        body: dict[str, Any] = answer.json()
        if body.get("status") != "success":
            raise HeadwayError(f"Prometheus on {head.name} refused a query: {body.get('error', '')[:200]}")
        return [
            Row(query.key, query.line, dict(row["metric"]), tuple((float(at), float(v)) for at, v in row["values"]))
            for row in body["data"]["result"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise _away(head, f"answered {answer.status_code} without figures") from error


def _away(head: Machine, what: str) -> Unreachable:
    return Unreachable(
        f"Prometheus on {head.name} {what}",
        hint=f"headway exec {head.cluster} -- systemctl status prometheus",
    )
