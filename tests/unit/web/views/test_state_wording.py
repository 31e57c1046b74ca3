"""The words of pages for states, reasons, times and prices."""

from __future__ import annotations

import pytest

from headway.jobs.explain.reason_lines import REASON_SENTENCES
from headway.schemas.nodes.nodes import GpuOut, NodeOut
from headway.web.views.overview import price
from headway.web.views.state_wording import count, duration, job_word, node_kind, pending_reason


def node(name: str, *, held: tuple[int | None, ...] = (None,) * 8, **changes: object) -> NodeOut:
    gpus = [GpuOut(index=i, job_id=j) for i, j in enumerate(held)]
    values = {"name": name, "role": "node", "leaf": "leaf1", "machine": "running", "states": ["IDLE"], "gpus": gpus}
    return NodeOut.model_validate({**values, **changes})


@pytest.mark.parametrize(
    ("states", "machine", "role", "expected"),
    [
        (["IDLE"], "running", "node", ("idle", "idle")),
        (["IDLE", "RESERVED"], "running", "spare", ("idle", "ready")),
        (["MIXED"], "running", "node", ("up", "in use")),
        (["ALLOCATED", "DRAIN"], "running", "node", ("drain", "draining")),
        (["IDLE", "DRAIN"], "running", "node", ("drain", "drained")),
        (["DOWN", "NOT_RESPONDING"], "running", "node", ("down", "down")),
        (["IDLE", "NOT_RESPONDING"], "running", "node", ("down", "not responding")),
        (["ALLOCATED"], "stopped", "node", ("down", "down")),
        (["UNKNOWN"], "running", "node", ("start", "starting")),
        ([], "running", "node", ("start", "not read yet")),
        ([], "running", "head", ("up", "running")),
        ([], "missing", "head", ("down", "down")),
    ],
)
def test_node_states_map_to_kind_and_label(
    states: list[str], machine: str, role: str, expected: tuple[str, str]
) -> None:
    assert node_kind(node("lab-1-1", states=states, machine=machine, role=role)) == expected


def test_pending_reasons_are_translated_to_sentences() -> None:
    assert pending_reason("(Resources)") == REASON_SENTENCES["Resources"]
    assert (
        pending_reason("ReqNodeNotAvail, UnavailableNodes:lab-1-3") == "nodes it needs are out of service or reserved"
    )
    assert pending_reason("Some_New_Reason") == "Some New Reason"
    assert pending_reason("") == "not yet considered by the scheduler"


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("RUNNING", "None", ("running", "running")),
        ("RUNNING COMPLETING", "None", ("running", "running")),
        ("PENDING", "JobHeldUser", ("waiting", "held")),
        ("COMPLETED", "None", ("done", "finished")),
        ("CANCELLED by 20001", "None", ("cancelled", "cancelled")),
        ("OUT_OF_MEMORY", "None", ("failed", "out of memory")),
        ("", "", ("failed", "unknown")),
    ],
)
def test_job_states_map_to_kind_and_label(state: str, reason: str, expected: tuple[str, str]) -> None:
    assert job_word(state, reason) == expected


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (59.9, "59s"), (60, "1m 00s"), (252, "4m 12s"), (3600, "1h 00m"), (187_500, "2d 4h")],
)
def test_duration_formats_seconds(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_counts_and_prices_are_formatted() -> None:
    assert count(1, "GPU") == "1 GPU"
    assert count(10_000, "GPU") == "10,000 GPUs"
    assert price("9832.5") == "$9,832.50"
    assert price("") == ""
