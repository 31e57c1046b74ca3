"""`headway fault` sends the right request to the server."""

from __future__ import annotations

import pytest

from headway.schemas.nodes.incidents import FaultIn, InjectedFaultOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


@pytest.mark.parametrize(
    ("words", "ask"),
    [
        (["xid", "79", "lab-1-2", "--gpu", "3"], {"kind": "xid", "node": "lab-1-2", "code": 79, "gpu": 3}),
        (["lab", "xid", "79", "lab-1-2"], {"kind": "xid", "node": "lab-1-2", "code": 79}),
        (["xid", "lab-1-2", "--heal"], {"kind": "xid", "node": "lab-1-2", "heal": True}),
        (["freeze-node", "lab-1-2", "--force"], {"kind": "freeze-node", "node": "lab-1-2", "force": True}),
        (["lab", "kill-node", "lab-1-2", "--heal"], {"kind": "kill-node", "node": "lab-1-2", "heal": True}),
        (["kill", "slurmd", "lab-1-2"], {"kind": "kill", "daemon": "slurmd", "node": "lab-1-2"}),
        (["lab", "kill", "slurmctld"], {"kind": "kill", "daemon": "slurmctld"}),
        (["kill", "server"], {"kind": "kill", "daemon": "server"}),
        (["reclaim", "lab-1-2"], {"kind": "reclaim", "node": "lab-1-2", "in_s": 120}),
        (["lab", "reclaim", "lab-1-2", "--in", "30"], {"kind": "reclaim", "node": "lab-1-2", "in_s": 30}),
    ],
)
def test_fault_sends_the_injection_request(cli: Cli, words: list[str], ask: dict[str, object]) -> None:
    cli.api.on("clusters.only_name", "lab").on("nodes.inject_fault", InjectedFaultOut(done="done"))
    assert cli("fault", *words).out == "done\n"
    ((args, _),) = cli.api.named("nodes.inject_fault")
    assert args[0] == "lab"
    assert args[1] == FaultIn.model_validate(ask)


@pytest.mark.parametrize(
    "words",
    [
        ["lab"],
        ["lab", "burn", "n"],
        ["xid", "lab-1-2"],
        ["xid", "79"],
        ["kill-node", "a", "b"],
        ["kill"],
        ["kill", "sshd", "lab-1-2"],
        ["kill", "slurmd"],
        ["kill", "relay", "lab-1-2"],
    ],
)
def test_fault_refuses_ambiguous_words(cli: Cli, words: list[str]) -> None:
    ended = cli("fault", *words)
    assert ended.code == 2
    assert "give" in ended.err


@pytest.mark.parametrize(
    "ask",
    [
        {"kind": "kill", "node": "n"},
        {"kind": "xid", "node": "n", "daemon": "slurmd"},
        {"kind": "kill", "daemon": "relay", "node": "n"},
        {"kind": "ecc"},
    ],
)
def test_fault_request_refuses_contradictory_fields(ask: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"needs a daemon|name a node|runs on the head"):
        FaultIn.model_validate(ask)
