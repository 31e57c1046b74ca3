"""Takes part in one all-reduce after the other, as the fabric test of the server asks (health/fabric_test.py).

Standard input has a line of JSON for each all-reduce, {"peers": [ADDRESS, ...], "rank": N}; standard output has a line
{"ready": true, "network": {...}} and then a line for each result. The libraries are loaded and the GPUs opened once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, TextIO

from agent.config import Config
from agent.node_tests.end_on_job_start import gives_way_to_jobs
from agent.node_tests.network_report import report_network
from agent.node_tests.results import NodeTestResult, result_of_error

Measure = Callable[[list[str], int], NodeTestResult]


def take_part(config: Config, prepare: Callable[[], Measure], asks: TextIO = sys.stdin) -> Iterator[str]:
    """Yields the lines for standard output. If the test can't run here, the only line is a skipped or failed result with the
    reason. `prepare`: loads what the test needs, and returns the function that measures."""
    try:
        with gives_way_to_jobs():
            measure = prepare()
            yield json.dumps({"ready": True, "network": report_network()})
            for line in asks:
                yield _line(measure, json.loads(line))
    except Exception as error:
        yield json.dumps(asdict(result_of_error("allreduce", config.simulated, error)))


def _line(measure: Measure, ask: dict[str, Any]) -> str:
    return json.dumps(asdict(measure([str(peer) for peer in ask["peers"]], int(ask["rank"]))))
