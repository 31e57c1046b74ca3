"""Decides which silent nodes to probe. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.domain.provider_traits import ProviderTraits
from headway.health.detection.agent_events import Heartbeats

PROBE_AFTER_S = 5.0
QUIET_S = 3.0  # two missed heartbeats: counted as silent when another node is about to be fenced
BOOTING_S = 90.0  # a machine that started less than this ago may not send heartbeats yet
LEASE_EXPIRED_S = (
    28.0  # by then an agent without contact has ended its node's jobs: node/agent/lost_contact/node_lease.py
)
CHECK_EVERY_S = 2.0  # how often the provider is asked whether a silent node's machine runs
PROBE_EVERY_S = 10.0  # how often a node is probed that answers although its agent is silent


def probe_after_s(provider: ProviderTraits) -> float:
    """Returns the seconds without heartbeats after which a node is probed. A machine that can't be powered off must have
    ended its jobs by itself before."""
    return PROBE_AFTER_S if provider.powers_off_machines else LEASE_EXPIRED_S


@dataclass(frozen=True, slots=True)
class Suspects:
    """`nodes`: silent nodes to probe. `hold_reason`: why no node is probed although nodes are silent."""

    nodes: tuple[str, ...] = ()
    hold_reason: str = ""


def find_suspects(
    beats: Heartbeats,
    started_at: Mapping[str, float],
    now: float,
    *,
    silent_after_s: float = PROBE_AFTER_S,
    share: float = 0.5,
    quiet_after_s: float = PROBE_AFTER_S,
) -> Suspects:
    """Returns the silent nodes to probe, or the reason why none is probed. `started_at`: start times of the running
    machines in unix seconds; nodes that are not in it have no running machine and are skipped. `share`: if at least
    this share of all known nodes is silent at once, the network or the head is at fault, and no node is probed.
    `quiet_after_s`: seconds of silence from which a node counts for `share`."""
    if beats.relay_away_s is not None:
        return Suspects()
    silent = sorted(node for node, age in beats.silent_s.items() if age >= silent_after_s and node in started_at)
    # the head still lists nodes that were removed
    known = beats.alive + sum(node in started_at for node in beats.silent_s)
    quiet = [node for node, age in beats.silent_s.items() if age >= quiet_after_s and node in started_at]
    if len(quiet) > 1 and len(quiet) >= share * known:
        return Suspects(
            hold_reason=f"{len(quiet)} of {known} nodes are silent at once: probably a network fault; no node is changed"
        )
    return Suspects(tuple(node for node in silent if now - started_at[node] > BOOTING_S))
