"""Queries the Prometheus of a cluster's head."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headway.cluster.monitoring.http_client import ANSWER_S, ForwardsPorts, open_http_client
from headway.cluster.monitoring.metric_queries import MetricQuery, MetricRow
from headway.domain.machines.machine import Machine
from headway.errors import HeadwayError, Unreachable
from headway.render.monitoring.prometheus import PROMETHEUS_PORT

if TYPE_CHECKING:
    import httpx

QUERIES_AT_ONCE = 4


async def query_range(
    connections: ForwardsPorts, head: Machine, queries: Sequence[MetricQuery], start: float, end: float, step_s: int
) -> tuple[MetricRow, ...]:
    """Returns the rows of all queries. `start`, `end`: unix seconds; `step_s`: seconds. Raises Unreachable if
    Prometheus or the head does not answer, HeadwayError if Prometheus refuses a query."""
    period = {"start": f"{start:.0f}", "end": f"{end:.0f}", "step": str(step_s)}
    return await _query(connections, head, queries, "/api/v1/query_range", period)


async def query_instant(
    connections: ForwardsPorts, head: Machine, queries: Sequence[MetricQuery]
) -> tuple[MetricRow, ...]:
    """Returns the rows of all queries for now, each with one value. Raises like `query_range`."""
    return await _query(connections, head, queries, "/api/v1/query", {})


async def _query(
    connections: ForwardsPorts, head: Machine, queries: Sequence[MetricQuery], path: str, period: Mapping[str, str]
) -> tuple[MetricRow, ...]:
    import httpx

    few = asyncio.Semaphore(QUERIES_AT_ONCE)
    async with open_http_client(connections, head, PROMETHEUS_PORT) as client:

        async def one(query: MetricQuery) -> list[MetricRow]:
            async with few:
                try:
                    answer = await client.post(path, data={"query": query.text, **period})
                except httpx.TimeoutException as error:
                    raise _away(head, f"did not answer within {ANSWER_S:g} s") from error
                except httpx.TransportError as error:
                    raise _away(head, "does not answer") from error
            return _rows(head, query, answer)

        found = await asyncio.gather(*(one(query) for query in queries))
    return tuple(row for rows in found for row in rows)


def _rows(head: Machine, query: MetricQuery, answer: httpx.Response) -> list[MetricRow]:
    try:
        body: dict[str, Any] = answer.json()
        if body.get("status") != "success":
            raise HeadwayError(
                f"Prometheus on {head.name} refused a query: {body.get('error', '')[:200]}",
                hint=f"headway exec {head.cluster} -- journalctl -u prometheus -n 50",
            )
        return [MetricRow(query.key, query.line, dict(row["metric"]), _values(row)) for row in body["data"]["result"]]
    except (ValueError, KeyError, TypeError) as error:
        raise _away(head, f"answered {answer.status_code} without figures") from error


def _values(row: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """Returns the values of a row: `value` of an instant query, `values` of a range."""
    pairs = [row["value"]] if "value" in row else row["values"]
    return tuple((float(at), float(value)) for at, value in pairs)


def _away(head: Machine, what: str) -> Unreachable:
    return Unreachable(
        f"Prometheus on {head.name} {what}",
        hint=f"headway exec {head.cluster} -- systemctl status prometheus",
    )
