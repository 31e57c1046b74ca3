"""Lines of the nodes' agents are parsed into the right values."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

from headway.domain.incident import FaultAction, Symptom
from headway.domain.machines.machine import Machine
from headway.health.detection.agent_events import Heartbeats, OfflineAction, parse_event, stream_events
from tests.support.clusters.builders import machine


async def test_parses_stream_split_at_any_byte() -> None:
    class Streams:
        async def stream(
            self, at: Machine, argv: Sequence[str], *, timeout_s: float | None = None
        ) -> AsyncIterator[bytes]:
            assert argv[-1] == "watch"
            for piece in (
                b'{"fault": {"id": "a", "at": 1, "node": "n", "code": 79, "gpu": null, "text": "x\\u001b[1m", "jo',
                b'b": 7}}\n{"fault": {}}\nnonsense\n{"alive": 2, "silent": {"n": 4.5}}\n{"relay": 9}\n{"al',
                b'ive": 1, "silent": {}}\n{"deed": {"signal": "a", "node": "n", "at": 2, "requeued": [7]}}\n',
            ):
                yield piece

    found = [event async for event in stream_events(Streams(), machine("lab-head"))]
    assert found == [
        Symptom("a", 1.0, "n", 79, None, "x[1m", 7), Heartbeats(2, {"n": 4.5}), Heartbeats(relay_away_s=9.0), Heartbeats(1),
        OfflineAction("deed a", 2.0, "n", "a", (7,)),
    ]  # fmt: skip


def test_bad_check_uses_suggested_action_and_warning_only_watches() -> None:
    row = {"id": "x", "at": 1.0, "node": "n", "check": "mounts", "state": "bad", "reason": "/scratch is gone"}
    line = json.dumps({"check": {**row, "action": "reboot"}}).encode()
    assert parse_event(line) == Symptom(
        "x", 1.0, "n", 0, None, "mounts: /scratch is gone", None, "mounts", FaultAction.REBOOT
    )
    warns = parse_event(json.dumps({"check": {**row, "state": "warn", "action": "reset_gpu", "gpu": 3}}).encode())
    assert isinstance(warns, Symptom)
    assert (warns.action, warns.gpu) == (FaultAction.WATCH, 3)
    assert parse_event(json.dumps({"check": {**row, "state": "ok"}}).encode()) is None
