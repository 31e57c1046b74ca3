"""Decides which silent nodes to probe. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.health.detection.event_stream import Heartbeats

SILENT_S = 5.0
QUIET_S = 3.0  # two heartbeats missed: counted with the silent ones when another node is about to be fenced
BOOTING_S = 90.0  # a machine that was started so lately may not speak yet
LEASE_EXPIRED_S = 28.0  # an agent without contact has ended its node's jobs by then: node/agent/ha/node_lease.py
CHECK_EVERY_S = 2.0  # whether the machine of a silent node runs at all: asking the provider disturbs nobody
PROBE_EVERY_S = 10.0  # a node that answers although its agent is silent


@dataclass(frozen=True, slots=True)
class Suspects:
    """`nodes`: silent nodes to probe. `hold_reason`: why nothing is done although nodes are silent."""

    nodes: tuple[str, ...] = ()
    hold_reason: str = ""


def find_suspects(
    beats: Heartbeats,
    started_at: Mapping[str, float],
    now: float,
    *,
    silent_after_s: float = SILENT_S,
    share: float = 0.5,
    quiet_after_s: float = SILENT_S,
) -> Suspects:
    """`started_at`: when the machines that run were started, in unix seconds; others are known to be gone. `share`: of all
    nodes that are there; when so many are silent together it is the network, or the head."""
    if beats.relay_away_s is not None:
        return Suspects()
    silent = sorted(node for node, age in beats.silent_s.items() if age >= silent_after_s and node in started_at)
    known = beats.alive + sum(node in started_at for node in beats.silent_s)  # the head remembers names of long ago
    quiet = [node for node, age in beats.silent_s.items() if age >= quiet_after_s and node in started_at]
    if len(quiet) > 1 and len(quiet) >= share * known:
        return Suspects(
            hold_reason=f"{len(quiet)} of {known} nodes are silent at once: the network, not the nodes; nothing is done"
        )
    return Suspects(tuple(node for node in silent if now - started_at[node] > BOOTING_S))
