"""Firewall rules that lock the server out do not stay in force."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.lost_contact import node_lease
from agent.metrics import http_endpoint
from agent.node_tests import nccl
from agent.roles import head
from headway.cluster.context import ClusterContext
from headway.cluster.owned import machine_claims
from headway.errors import Refused, Unreachable
from headway.render.system import firewall
from headway.transport.process import CommandResult
from tests.support.clusters import builders

NODE = builders.machine("lab-1-1")
LOADED = {"op": "units", "names": [firewall.SERVICE], "action": "reload"}


class World:
    """A machine with a connection that is open; new ones fail as often as `shut` says."""

    def __init__(self, shut: int) -> None:
        self.shut = shut
        self.did: list[str] = []
        self.context = ClusterContext(None, None, self, Path())  # type: ignore[arg-type]

    async def knock(self, _: Any) -> None:
        self.shut -= 1
        if self.shut >= 0:
            raise Unreachable("lab-1-1 does not answer SSH on port 22")

    async def remote(self, _: Any, argv: Sequence[str], **__: Any) -> CommandResult:
        self.did.append(" ".join(argv))
        return CommandResult(tuple(argv), 0, "", "", 0.0)


async def test_firewall_rules_that_admit_the_server_stay() -> None:
    world = World(shut=1)  # one that was lost is no sign yet
    await machine_claims.check_ssh_after_firewall(world.context, NODE)
    assert world.did == []


async def test_firewall_rules_that_lock_the_server_out_are_disabled() -> None:
    world = World(shut=1000)
    with pytest.raises(Refused, match="accepts no SSH connection with") as caught:
        await machine_claims.check_ssh_after_firewall(world.context, NODE)
    assert world.did == ["systemctl disable --now headway-firewall.service"]
    assert "firewall.ssh_from" in caught.value.hint


def test_firewall_covers_every_agent_port() -> None:
    assert {http_endpoint.PORT, head.PORT, node_lease.PORT, nccl.PORT} <= set(firewall.PORTS)


def test_loads_firewall_rules_detects_a_firewall_reload() -> None:
    assert machine_claims.loads_firewall_rules([{"op": "daemon_reload"}, LOADED])
    assert not machine_claims.loads_firewall_rules([{"op": "units", "names": ["munge.service"], "action": "start"}])
