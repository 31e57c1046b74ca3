"""Packet filter rules of this host that keep the networks of local clusters apart.

podman's own option for it, `isolate=true`, is not enough: netavark 1.4 (Debian 12) deletes the jump to the rules of all
isolated networks when the last container of one of them ends. The rules here are in the table `mangle`, so an ACCEPT of
podman in the table `filter` does not pass them by.
"""

from __future__ import annotations

import ipaddress

from headway.errors import CommandFailed
from headway.transport.process import run_process

_FROM, _TO = "HEADWAY_FROM_CLUSTERS", "HEADWAY_TO_CLUSTERS"
_TIMEOUT_S = 30
_HINT = "local clusters need iptables with the table `mangle`: run `headway doctor`"


async def isolate(subnet: ipaddress.IPv4Network) -> None:
    """Drops packets between the cluster network `subnet` and the networks of all other local clusters. Adds only the
    rules that are missing. Callers hold the host's network lock.

    Raises CommandFailed if iptables fails."""
    there = set((await _iptables("-S")).splitlines())
    for chain in (_FROM, _TO):
        if f"-N {chain}" not in there:
            await _iptables("-N", chain)
    # The jump from FORWARD comes last: before it the chains have no effect.
    for chain, rule in (*_rules(subnet), ("FORWARD", f"-j {_FROM}")):
        if f"-A {chain} {rule}" not in there:
            await _iptables("-A", chain, *rule.split())


async def forget(subnet: ipaddress.IPv4Network) -> None:
    """Deletes the rules of a cluster network that exists no more. Callers hold the host's network lock.

    Raises CommandFailed if iptables fails."""
    there = (await _iptables("-S")).splitlines()
    for chain, rule in _rules(subnet):
        if f"-A {chain} {rule}" in there:
            await _iptables("-D", chain, *rule.split())


def _rules(subnet: ipaddress.IPv4Network) -> tuple[tuple[str, str], ...]:
    """Returns chain and rule as `iptables -S` prints them."""
    return ((_TO, f"-d {subnet} -j DROP"), (_FROM, f"-s {subnet} ! -d {subnet} -j {_TO}"))


async def _iptables(*argv: str) -> str:
    try:
        return (await run_process(["iptables", "-w", "-t", "mangle", *argv], timeout_s=_TIMEOUT_S)).stdout
    except CommandFailed as error:
        error.hint = error.hint or _HINT
        raise
