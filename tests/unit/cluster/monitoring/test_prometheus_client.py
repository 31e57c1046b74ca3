"""The head's Prometheus is queried through a forwarded port."""

from __future__ import annotations

import json

import pytest

from headway.cluster.monitoring.metric_queries import MetricQuery
from headway.cluster.monitoring.prometheus_client import query_instant, query_range
from headway.errors import HeadwayError, Unreachable
from headway.render.monitoring.prometheus import PROMETHEUS_PORT
from tests.support.clusters.builders import machine
from tests.support.servers.forwarded_port import ForwardedPort

HEAD = machine("lab-head")


def answer(**rows: object) -> bytes:
    return json.dumps({"status": "success", "data": {"result": [rows]}}).encode()


async def test_range_query_returns_labels_and_values_or_says_why_not(forwarded: ForwardedPort) -> None:
    forwarded.port = PROMETHEUS_PORT
    forwarded.body = answer(metric={"node": "lab-1-1", "gpu": "3"}, values=[[100, "2.5"], [110, "NaN"]])
    [row] = await query_range(forwarded, HEAD, [MetricQuery("k", 'up{a="b"}')], 100, 110, 10)
    assert (row.labels["gpu"], row.values[0]) == ("3", (100.0, 2.5))
    assert forwarded.asked_path == "/api/v1/query_range"
    assert b"query=up%7Ba%3D%22b%22%7D" in forwarded.asked
    forwarded.body = b"<html>"
    with pytest.raises(Unreachable, match="without figures"):
        await query_range(forwarded, HEAD, [MetricQuery("k", "up")], 100, 110, 10)
    forwarded.path.unlink()
    with pytest.raises(Unreachable, match="Prometheus on lab-head does not answer"):
        await query_range(forwarded, HEAD, [MetricQuery("k", "up")], 100, 110, 10)


async def test_instant_query_returns_one_value_per_row(forwarded: ForwardedPort) -> None:
    forwarded.port = PROMETHEUS_PORT
    forwarded.body = answer(metric={"hpc_job": "7"}, value=[100.5, "8"])
    [row] = await query_instant(forwarded, HEAD, [MetricQuery("k", "up")])
    assert (row.key, row.labels["hpc_job"], row.values) == ("k", "7", ((100.5, 8.0),))
    assert (forwarded.asked_path, forwarded.asked) == ("/api/v1/query", b"query=up")
    forwarded.body = b'{"status": "error", "error": "bad query"}'
    with pytest.raises(HeadwayError, match="bad query"):
        await query_instant(forwarded, HEAD, [MetricQuery("k", "(")])
